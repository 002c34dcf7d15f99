"""What the host of an embedded plane is told, unless the environment says otherwise."""

from pathlib import Path

import pytest

from headway.cli import embedded
from headway.plane.service import Service, ServiceSpec


@pytest.mark.parametrize(
    ("replicas", "waits"),
    [({}, False), ({"host": 2}, True), ({"host": 2, "autoscaler": 0}, False), ({"autoscaler": 2}, False)],
)
def test_only_one_of_several_hosts_waits_to_be_told_what_to_run(replicas: dict[str, int], waits: bool) -> None:
    assert ("HEADWAY_HOST_PATIENCE_S" in embedded.host_defaults(replicas)) == (not waits)


@pytest.mark.parametrize(("cores", "announced"), [(0.5, "2"), (1.0, "2"), (2.0, None), (64.0, None)])
def test_a_small_machine_announces_two_cores(
    cores: float, announced: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(embedded, "cores", lambda: cores)
    assert embedded.host_defaults({}).get("HEADWAY_HOST_CPU") == announced


def test_what_the_environment_says_counts_more_than_a_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADWAY_HOST_CPU", "7")
    monkeypatch.delenv("HEADWAY_HOST_PATIENCE_S", raising=False)
    defaults = {"HEADWAY_HOST_CPU": "2", "HEADWAY_HOST_PATIENCE_S": "0"}
    spec = ServiceSpec("host", ("host",), 9104, {"HEADWAY_CONFIG": "c"}, defaults=defaults)
    given = Service(spec, {"HEADWAY_HOME": "h"}, tmp_path / "host.log", None).environment
    names = ("HEADWAY_HOST_CPU", "HEADWAY_HOST_PATIENCE_S", "HEADWAY_CONFIG", "HEADWAY_HOME")
    assert [given[name] for name in names] == ["7", "0", "c", "h"]
