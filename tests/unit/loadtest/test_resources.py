"""CPU and memory by part, of real processes."""

import os
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from headway.plane.endpoints import Endpoints
from loadtest.resources import Usage, cpu_between, usage

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-S", "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE)
print(child.pid, flush=True)
sys.stdin.read()
child.kill()
child.wait()
"""


class Child:
    """A process that ends with its input, and has a child of its own."""

    def __init__(self, *arguments: str) -> None:
        argv = [sys.executable, "-S", "-c", PARENT, *arguments]
        self.process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self.process.stdout
        self.grandchild = int(self.process.stdout.readline())

    @property
    def rss_mib(self) -> float:
        """Of both."""
        return sum(psutil.Process(pid).memory_info().rss / (1 << 20) for pid in (self.process.pid, self.grandchild))


@pytest.fixture
def started() -> Iterator[list[Child]]:
    children: list[Child] = []
    yield children
    for child in children:
        child.process.communicate()


def test_a_process_counts_with_its_part_or_that_of_its_parent(started: list[Child]) -> None:
    started += [Child(), Child("worker", "--model-class embedding --model-class llm")]  # as a title of its own has it
    pids = {"plane": os.getpid(), "kafka": started[0].process.pid}
    found = usage(Endpoints(ready=True, kafka="", redis="", pids=pids))
    assert found.keys() >= {"loadtest", "kafka", "worker embedding+llm"}  # this process may have a plane of its own
    for part, child in zip(("kafka", "worker embedding+llm"), started, strict=True):
        assert found[part].rss_mib == pytest.approx(child.rss_mib, rel=0.2)


def test_cpu_time_is_what_was_added_and_a_new_part_begins_at_nothing() -> None:
    before = {"kafka": Usage(10.0, 1.0), "worker gone": Usage(5.0, 1.0), "worker": Usage(8.0, 1.0)}
    after = {"kafka": Usage(12.5, 1.0), "worker": Usage(1.0, 1.0), "worker new": Usage(0.5, 1.0)}
    assert cpu_between(before, after) == {"kafka": 2.5, "worker": 0.0, "worker new": 0.5}
