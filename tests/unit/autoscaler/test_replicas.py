"""Workers are counted by state, and how many there are to be is what the hosts say."""

from typing import Literal

import pytest

from schemas.fleet import HostStatus, WorkerStatus
from schemas.models import Backend, ModelClass, Queue, SimulatedEngine, queues
from services.autoscaler.domain.replicas import desired, replicas

ENGINE = SimulatedEngine(kind="simulated")


@pytest.fixture
def found() -> tuple[Queue, ...]:
    backends = (Backend(name="local", engine=ENGINE), Backend(name="burst", engine=ENGINE))
    return tuple(queues({"llm": ModelClass(backends=backends)}))


def worker(backend: str, state: Literal["starting", "warm", "draining"]) -> WorkerStatus:
    return WorkerStatus(
        instance="w", host="h", model_class="llm", backend=backend, state=state, slots=2, busy=0, ready_at=0
    )


def host(desired: dict[str, int] | None) -> HostStatus:
    return HostStatus(instance="h", workers={"llm": 7}, desired=desired)


def test_each_backend_has_its_own(found: tuple[Queue, ...]) -> None:
    local, burst = found
    workers = [
        worker("local", "warm"),
        worker("local", "warm"),
        worker("local", "draining"),
        worker("burst", "starting"),
    ]
    nothing = {"starting": 0, "warm": 0, "asleep": 0, "draining": 0, "failed": 0}
    assert replicas(local, workers) == nothing | {"warm": 2, "draining": 1}
    assert replicas(burst, workers) == nothing | {"starting": 1}


def test_all_hosts_together_are_to_keep_so_many(found: tuple[Queue, ...]) -> None:
    local, burst = found
    hosts = [host({"llm": 2, "llm.burst": 1}), host({"llm": 1}), host(None)]
    assert (desired(local, hosts), desired(burst, hosts)) == (3, 1)
    assert desired(burst, [host({"llm": 2})]) == 0


def test_where_no_host_says_so_it_is_not_known(found: tuple[Queue, ...]) -> None:
    assert desired(found[0], []) is None
    assert desired(found[0], [host(None)]) is None
