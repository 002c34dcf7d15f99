"""What is likely called is started ahead, all at once; how often that was in vain is counted."""

import random

from services.autoscaler.domain.branches import Branches
from services.autoscaler.domain.false_warms import FalseWarms, Tally
from services.autoscaler.domain.open_runs import Need, OpenRuns
from services.autoscaler.domain.prewarm import prewarmed
from tests.unit.autoscaler.graphs import call, graph

BRANCHING = graph(call("embed", "embedding"), call("code", "code", when="${input.code}"))


def needs(**probabilities: float) -> dict[str, Need]:
    return {model_class: Need(probability, probability) for model_class, probability in probabilities.items()}


def test_every_class_that_is_likely_called_gets_a_worker_at_once() -> None:
    assert set(prewarmed(needs(embedding=1.0, llm=0.7, code=0.69), ())) == {"embedding", "llm"}


def test_one_that_was_started_is_kept_while_a_run_may_still_call_it() -> None:
    assert set(prewarmed(needs(code=0.1), before=["code"])) == {"code"}
    assert not prewarmed(needs(code=0.09), before=["code"])


def test_one_that_no_run_needs_any_more_is_cancelled() -> None:
    assert not prewarmed({}, before=["code"])


def test_the_reason_can_be_read() -> None:
    assert prewarmed({"llm": Need(0.875, 1.5)}, ())["llm"] == (
        1,
        "pre-warm: 1.5 calls expected of open runs, 88% likely",
    )


def test_a_start_that_no_task_followed_was_in_vain() -> None:
    warms = FalseWarms()
    warms.observe(prewarmed=["code"], warm=[], called=[])
    warms.observe(prewarmed=["code"], warm=["code"], called=[])
    assert warms.tallies == {"code": Tally(1, 0)}
    warms.observe(prewarmed=[], warm=["code"], called=[])
    assert warms.tallies == {"code": Tally(1, 1)}


def test_a_start_that_a_task_followed_was_not() -> None:
    warms = FalseWarms()
    warms.observe(prewarmed=["code"], warm=[], called=[])
    warms.observe(prewarmed=["code"], warm=[], called=["code"])
    warms.observe(prewarmed=["code"], warm=["code"], called=[])
    warms.observe(prewarmed=[], warm=["code"], called=[])
    assert warms.tallies == {"code": Tally(1, 0)}
    assert warms.tallies["code"].false_share == 0


def test_what_was_warm_or_called_anyway_was_not_started_ahead() -> None:
    warms = FalseWarms()
    warms.observe(prewarmed=["embedding", "llm"], warm=["embedding"], called=["llm"])
    assert not warms.tallies


def test_on_a_branch_of_a_quarter_at_most_30_percent_of_the_starts_are_in_vain() -> None:
    """Batches of runs, in which nothing is decided before the last has started: the hardest there is."""
    dice = random.Random(7)
    open_runs, started, in_vain = OpenRuns(Branches()), 0, 0
    for _ in range(2_000):
        batch = [str(number) for number in range(dice.randint(1, 10))]
        for run_id in batch:
            open_runs.start(run_id, BRANCHING, 0)
        takes = {run_id: dice.random() < 0.25 for run_id in batch}
        if "code" in prewarmed(open_runs.needs(), ()):
            started += 1
            in_vain += not any(takes.values())
        for run_id, taken in takes.items():
            open_runs.decide(run_id, "embed", taken=True)
            open_runs.decide(run_id, "code", taken=taken)
            open_runs.end(run_id, teaches=True)
    assert started > 500
    assert in_vain / started <= 0.3
