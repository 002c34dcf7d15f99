"""endpoints.json: what other commands read of a plane."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.plane.endpoints import Endpoints, load_endpoints, remove_endpoints, write_endpoints
from headway.plane.errors import PlaneError


def endpoints(supervisor: int) -> Endpoints:
    return Endpoints(
        ready=True,
        kafka="127.0.0.1:9092",
        redis="redis://127.0.0.1:6379/0",
        metrics={"orchestrator": "http://127.0.0.1:9101/metrics"},
        pids={"plane": supervisor, "kafka": 2},
    )


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    written = endpoints(os.getpid())
    write_endpoints(tmp_path, written)
    assert load_endpoints(tmp_path) == written


def test_a_gateway_that_does_not_exist_is_null(tmp_path: Path) -> None:
    write_endpoints(tmp_path, endpoints(os.getpid()))
    assert '"gateway": null' in (tmp_path / "endpoints.json").read_text()


def test_a_home_without_a_plane_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(
        PlaneError, match=f"no plane is up in {tmp_path}: start one with `headway up --home {tmp_path}`"
    ):
        load_endpoints(tmp_path)


def test_the_file_of_a_killed_plane_counts_for_nothing(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    write_endpoints(tmp_path, endpoints(ended.pid))
    with pytest.raises(PlaneError, match="no plane is up"):
        load_endpoints(tmp_path)


@pytest.mark.parametrize("text", ["", "{", '{"ready": true}', "[]", '{"ready": true, "kafka": 1, "redis": ""}'])
def test_a_damaged_file_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "endpoints.json").write_text(text)
    with pytest.raises(PlaneError, match=r"endpoints\.json is damaged"):
        load_endpoints(tmp_path)


def test_a_file_without_the_supervisors_pid_is_no_plane(tmp_path: Path) -> None:
    write_endpoints(tmp_path, endpoints(os.getpid()).model_copy(update={"pids": {}}))
    with pytest.raises(PlaneError, match="no plane is up"):
        load_endpoints(tmp_path)


def test_removing_twice_is_harmless(tmp_path: Path) -> None:
    write_endpoints(tmp_path, endpoints(os.getpid()))
    remove_endpoints(tmp_path)
    remove_endpoints(tmp_path)
    assert not (tmp_path / "endpoints.json").exists()
