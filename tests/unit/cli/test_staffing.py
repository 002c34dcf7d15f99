"""Whether a fleet has the workers that it is to have."""

import pytest

from headway.cli.staffing import current, staffed
from schemas.definitions import definition_of
from schemas.fleet import HostStatus, ScalingDecision, WorkerStatus
from schemas.models import Backend, ModelClass, Queue, Scaling, SimulatedEngine, queues

BACKEND = Backend(name="local", engine=SimulatedEngine(kind="simulated"))


@pytest.fixture
def configured() -> list[Queue]:
    idle = Scaling(tier="zero", min_replicas=0)
    return list(
        queues({"llm": ModelClass(backends=(BACKEND,)), "sql": ModelClass(backends=(BACKEND,), scaling=idle)})
    )


def worker(model_class: str, state: str) -> WorkerStatus:
    return WorkerStatus.model_validate(
        {
            "instance": "w",
            "host": "h",
            "model_class": model_class,
            "backend": "local",
            "state": state,
            "slots": 4,
            "busy": 0,
        }
    )


def decision(queue: str, replicas: int, unplaced: int = 0) -> ScalingDecision:
    return ScalingDecision(
        instance="a", epoch=3, queue=queue, replicas=replicas, unplaced=unplaced, because="the load"
    )


def test_where_nobody_decides_the_configuration_counts(configured: list[Queue]) -> None:
    found = staffed(configured, [], [worker("llm", "starting")])
    assert (found.ok, found.found) == (False, "no warm worker for llm")
    assert staffed(configured, [], [worker("llm", "warm")]).ok


def test_what_was_decided_to_sleep_or_to_be_gone_is_not_missed(configured: list[Queue]) -> None:
    decisions = [decision("llm", 0), decision("sql", 0)]
    assert staffed(configured, decisions, [worker("llm", "asleep")]).found.startswith("warm for 0 of 2")
    assert staffed(configured, decisions, []).ok


def test_what_was_decided_to_be_there_is_missed(configured: list[Queue]) -> None:
    found = staffed(configured, [decision("llm", 1), decision("sql", 2)], [worker("llm", "warm")])
    assert (found.ok, found.found) == (False, "no warm worker for sql")
    assert found.fix == "headway models try sql --input '{…}'"


def test_what_finds_no_room_is_told_first(configured: list[Queue]) -> None:
    found = staffed(configured, [decision("llm", 3, unplaced=1)], [worker("llm", "warm")])
    assert (found.ok, found.found, found.fix) == (False, "no host has room for llm", "headway scale explain llm")


def test_outdated_workers_that_no_host_replaces_are_named_with_what_replaces_them(configured: list[Queue]) -> None:
    _, sql = configured
    told = [
        worker("llm", "warm").model_copy(update={"definition": "another"}),
        worker("sql", "warm").model_copy(update={"definition": definition_of(sql)}),
    ]
    found = current(configured, told, [])
    assert (found.ok, found.found) == (False, "workers of llm were started with another definition of it")
    assert found.fix == "kubectl -n headway rollout restart deployment/worker-llm"
    assert current(configured, told, [HostStatus(instance="h", workers={})]).ok
    assert current(configured, [worker("llm", "warm")], []).ok, "an older version does not tell"
