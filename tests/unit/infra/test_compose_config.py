"""What compose itself makes of the files, where there is a compose: no engine is asked, nothing is started."""

import json
import shutil
import subprocess
from os import environ
from typing import Any

import pytest

from tests.unit.infra.composed import ROOT, composed

PLANES = {
    "plain": (),
    "secure": ("infra/compose.secure.yml",),
    "gpu": ("infra/compose.gpu.yml",),
    "vllm": ("infra/compose.vllm.yml",),
    "tracing": ("infra/compose.tracing.yml",),
    "all": (
        "infra/compose.secure.yml",
        "infra/compose.gpu.yml",
        "infra/compose.vllm.yml",
        "infra/compose.tracing.yml",
    ),
}
WITHOUT_DEFAULT = {"VLLM_MODEL": "VLLM_MODEL"}

Service = dict[str, Any]


@pytest.fixture(scope="module", autouse=True)
def compose() -> None:
    if not shutil.which("docker") or run("version").returncode:
        pytest.skip("there is no `docker compose` on this machine")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["docker", "compose", *arguments]
    return subprocess.run(
        command, cwd=ROOT, env=environ | WITHOUT_DEFAULT, capture_output=True, text=True, check=False
    )


def config(*overlays: str) -> dict[str, Service]:
    """The services that compose would start."""
    files = [option for file in ("docker-compose.yml", *overlays) for option in ("-f", file)]
    done = run(*files, "config", "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    services: dict[str, Service] = json.loads(done.stdout)["services"]
    return services


def seen(service: Service) -> Service:
    """What the other tests read of a service and overlays change, in one form."""
    return {
        "environment": {name: str(value) for name, value in service.get("environment", {}).items()},
        "depends on": {name: other["condition"] for name, other in service.get("depends_on", {}).items()},
        "command": service.get("command"),
        "entrypoint": service.get("entrypoint"),
        "health": service.get("healthcheck", {}).get("test"),
        "secrets": {_source(secret) for secret in service.get("secrets", ())},
        "tmpfs": service.get("tmpfs", []),
    }


def _source(secret: str | Service) -> str:
    return secret if isinstance(secret, str) else secret["source"]


@pytest.mark.parametrize("plane", PLANES)
def test_compose_reads_them_as_the_other_tests_do(plane: str) -> None:
    read = composed(*PLANES[plane])["services"]
    assert {name: seen(service) for name, service in config(*PLANES[plane]).items()} == {
        name: seen(service) for name, service in read.items()
    }
