"""The image: built from public names, without root, without build tools, from the files that git has."""

import re

import pytest

from services.aggregator.settings import AggregatorSettings
from services.host.settings import HostSettings
from services.orchestrator.settings import OrchestratorSettings
from tests.unit.infra.composed import ROOT

DOCKERFILE = (ROOT / "infra/images/Dockerfile").read_text(encoding="utf-8")
STAGES = re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]
RESULTS = [stage for stage in STAGES if stage.split()[2] in ("plane", "models")]


def test_every_stage_stands_on_python_or_another_stage() -> None:
    names = [stage.split()[2] for stage in STAGES]
    assert {stage.split()[0] for stage in STAGES} <= {"python:3.13-slim", *names}
    assert names[-1] == "models", "what is built if no target is named"


@pytest.mark.parametrize("stage", RESULTS)
def test_what_runs_is_not_root_and_has_no_build_tools(stage: str) -> None:
    assert stage.rstrip().endswith("USER 10001:10001")
    assert "pip uninstall --yes" in stage
    assert not re.search(r"build-essential|gcc|git|curl|wget", stage)


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
