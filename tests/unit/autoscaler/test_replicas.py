"""Workers are counted by state, and how many there are to be is what the hosts say."""

from typing import Literal

import pytest

from schemas.fleet import ScalingDecision, WorkerStatus
from schemas.models import Backend, ModelClass, Queue, SimulatedEngine, queues
from services.autoscaler.domain.replicas import replicas
from services.chassis.fleet import in_force

ENGINE = SimulatedEngine(kind="simulated")


@pytest.fixture
def found() -> tuple[Queue, ...]:
    backends = (Backend(name="local", engine=ENGINE), Backend(name="burst", engine=ENGINE))
    return tuple(queues({"llm": ModelClass(backends=backends)}))


def worker(backend: str, state: Literal["starting", "warm", "draining"]) -> WorkerStatus:
    return WorkerStatus(
        instance="w", host="h", model_class="llm", backend=backend, state=state, slots=2, busy=0, ready_at=0
    )


def decision(epoch: int, queue: str, replicas: int) -> ScalingDecision:
    return ScalingDecision(instance=f"a{epoch}", epoch=epoch, queue=queue, replicas=replicas, because="the load")


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


def test_the_newest_leader_has_decided() -> None:
    told = [decision(7, "llm", 3), decision(9, "llm", 1), decision(9, "llm.burst", 2), decision(7, "sql", 5)]
    assert {queue: each.replicas for queue, each in in_force(told).items()} == {"llm": 1, "llm.burst": 2}
    assert in_force([]) == {}
