"""The image: built from public names, without root, without build tools, from the files that git has."""

import re
import tomllib

import pytest

from services.aggregator.settings import AggregatorSettings
from services.host.settings import HostSettings
from services.orchestrator.settings import OrchestratorSettings
from tests.unit.infra.composed import ROOT

DOCKERFILE = (ROOT / "infra/images/Dockerfile").read_text(encoding="utf-8")
STAGES = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
RESULTS = {stage.split()[2]: stage for stage in STAGES if stage.split()[2] in ("plane", "vllm", "models")}


def test_every_stage_stands_on_python_or_another_stage() -> None:
    names = [stage.split()[2] for stage in STAGES]
    assert {stage.split()[0] for stage in STAGES} <= {"python:3.13-slim", *names}
    assert names[-1] == "models", "what is built if no target is named"


@pytest.mark.parametrize("name", RESULTS)
def test_what_runs_is_not_root_and_has_no_build_tools(name: str) -> None:
    """vLLM needs a compiler while it runs."""
    assert RESULTS[name].split("USER ")[-1].split()[0] == "10001:10001"
    assert "pip uninstall --yes" in RESULTS[name]
    compiler = {"gcc"} if name == "vllm" else set()
    assert set(re.findall(r"build-essential|gcc|git|curl|wget", RESULTS[name])) == compiler


def test_every_image_can_call_models_on_triton_and_each_extra_is_one_of_the_project() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    installed = [set(extras.split()) for extras in re.findall(r"python pins\.py ([\w ]+) >", DOCKERFILE)]
    assert len(installed) == len(RESULTS)
    for extras in installed:
        assert {"tracing", "kubernetes", "triton"} <= extras <= project["optional-dependencies"].keys()


def test_it_is_healthy_only_while_its_service_is_ready() -> None:
    assert re.search(r"^HEALTHCHECK .*\\\n +CMD \[.*ready\.py\"]$", DOCKERFILE, flags=re.MULTILINE)


def test_the_health_check_knows_the_ports_of_the_services() -> None:
    script = (ROOT / "infra/images/ready.py").read_text(encoding="utf-8")
    for settings in (OrchestratorSettings, AggregatorSettings, HostSettings):
        assert str(settings().metrics_port) in script


def test_nothing_of_the_machine_that_builds_it_gets_in() -> None:
    assert not re.search(r"proxy|index-url|trusted-host|ARG |ADD ", DOCKERFILE)
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert ignored[1] == "*", "what is not named stays out"
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, flags=re.MULTILINE)
    for source in " ".join(copied).split():
        assert (ROOT / source).exists(), source
