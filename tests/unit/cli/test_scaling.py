"""What `headway scale` says of a fleet's decisions."""

import pytest

from headway.cli.exits import CliError, Exit
from headway.cli.scaling import ScaleRow, rows, terms
from schemas.fleet import ScalingDecision, Term, WorkerStatus
from schemas.models import Backend, ModelClass, Queue, SimulatedEngine, queues

LOAD = Term(term="by load", value="2", how="the formula")


@pytest.fixture
def configured() -> tuple[Queue, ...]:
    backend = Backend(name="local", engine=SimulatedEngine(kind="simulated"))
    return tuple(queues({"llm": ModelClass(backends=(backend,)), "sql": ModelClass(backends=(backend,))}))


def decision(epoch: int, replicas: int, because: str = "the load") -> ScalingDecision:
    return ScalingDecision(
        instance=f"a{epoch}", epoch=epoch, queue="llm", replicas=replicas, lag_s=1.5, because=because, terms=(LOAD,)
    )


def test_each_queue_is_told_with_its_workers_and_the_newest_decision(configured: tuple[Queue, ...]) -> None:
    worker = WorkerStatus(
        instance="w", host="h", model_class="llm", backend="local", state="starting", slots=4, busy=0
    )
    assert rows(configured, [decision(9, 3), decision(4, 1, "tier always")], [worker]) == [
        ScaleRow("llm", 3, 0, 1, 0, 0, 1.5, "the load"),
        ScaleRow("sql", None, 0, 0, 0, None, None, "nothing is known of it yet"),
    ]


def test_where_nobody_leads_it_says_so(configured: tuple[Queue, ...]) -> None:
    with pytest.raises(CliError, match="no autoscaler leads") as error:
        rows(configured, [], [])
    assert error.value.code is Exit.UNREACHABLE


def test_a_queue_that_nobody_decides_about_is_not_found() -> None:
    assert terms("llm", [decision(1, 2)]) == (LOAD,)
    with pytest.raises(CliError, match="nothing is decided about 'lmm'; there are llm") as error:
        terms("lmm", [decision(1, 2)])
    assert error.value.code is Exit.NOT_FOUND
