"""The chaos checker on hand-made histories: clean ones pass, and every class of anomaly is found as what it is."""

from dataclasses import replace
from typing import Any

import pytest

from loadtest.chaos.checker import CLASSES
from loadtest.chaos.history import Entry
from loadtest.chaos.seen import UsageSeen
from loadtest.nemesis.fault import Evidence, Strike
from tests.unit.loadtest.histories import DEADLINE_MS, T0, Story, later, names

REQUEST, RUN, NONCE = names(1)
EXPIRED: dict[str, Any] = {"status": "expired", "output": None, "error": {"code": "deadline_exceeded"}}
CANCELLED: dict[str, Any] = {"status": "cancelled", "output": None, "error": {"code": "cancelled"}}


def test_a_history_in_which_all_went_well_is_clean() -> None:
    verdict = Story().ask(1).ask(2).verdict()
    assert verdict.clean
    assert (verdict.accepted, verdict.answered, verdict.duplicates) == (2, 2, 0)
    assert set(verdict.anomalies) == set(CLASSES)


def test_an_accepted_request_without_a_response_is_lost() -> None:
    story = Story().ask(2)
    story.invoke(REQUEST, NONCE)
    assert story.anomalies() == {"lost": [REQUEST]}


def test_a_request_in_the_log_must_be_answered_though_its_client_was_never_told() -> None:
    story = Story()
    story.invoke(REQUEST, NONCE, kind="info")
    assert story.anomalies() == {"lost": [REQUEST]}


def test_a_request_that_certainly_was_not_taken_need_not_be_answered() -> None:
    story = Story()
    story.invoke(REQUEST, NONCE, kind="fail")
    assert story.verdict().clean
    assert story.verdict().accepted == 0


def test_two_responses_that_differ_conflict() -> None:
    story = Story().ask()
    story.respond(REQUEST, RUN, NONCE, T0 + 400)
    story.strike("kill-aggregator", T0 + 200, T0 + 900)
    assert story.anomalies() == {"conflicting": [REQUEST]}


def test_an_identical_copy_after_a_crash_is_counted_and_forgiven() -> None:
    story = Story().ask()
    story.seen.responses.append(later(story.seen.responses[0], 500))
    story.strike("kill-aggregator", T0 + 200, T0 + 900)
    assert story.verdict().clean
    assert story.verdict().duplicates == 1


def test_an_identical_copy_without_a_crash_is_not() -> None:
    story = Story().ask()
    story.seen.responses.append(later(story.seen.responses[0], 500))
    story.strike("flush-valkey", T0 + 200, T0 + 900)
    assert story.anomalies() == {"unexplained_duplicates": [REQUEST]}


def test_a_response_nobody_asked_for_is_a_phantom() -> None:
    story = Story().ask()
    story.respond("chaos-7-99", "run-99", "nonce-7-99-", T0)
    assert story.anomalies() == {"phantom": ["chaos-7-99"], "usage_mismatches": ["chaos-7-99"]}


def test_the_nemesis_s_own_requests_are_no_phantoms() -> None:
    story = Story().ask()
    story.respond("rubbish-1", "run-r", "", T0, status="failed", output=None)
    assert "phantom" not in story.anomalies()


def test_an_output_with_another_requests_nonce_is_a_wrong_join() -> None:
    other = names(2)[2]
    assert Story().ask(output={"nonce": other, "n": 8}).anomalies() == {"wrong_joins": [REQUEST]}
    assert Story().ask(labels={"nonce": other}).anomalies() == {"wrong_joins": [REQUEST]}


@pytest.mark.parametrize("output", [{"nonce": NONCE, "n": 7}, {"nonce": NONCE}, {}, None])
def test_an_output_that_its_own_steps_do_not_make_is_a_torn_join(output: object) -> None:
    assert Story().ask(output=output).anomalies() == {"torn_joins": [REQUEST]}


def test_a_status_the_request_cannot_have_is_a_wrong_outcome() -> None:
    failed: dict[str, Any] = {"status": "failed", "output": None, "error": {"code": "internal"}}
    assert Story().ask(**failed).anomalies() == {"wrong_outcomes": [REQUEST]}
    assert Story().ask(**EXPIRED).anomalies() == {"wrong_outcomes": [REQUEST]}
    assert Story().ask(**CANCELLED).anomalies() == {"wrong_outcomes": [REQUEST]}


def story_that_ends_at(decided_ms: int, published_ms: int, **changes: object) -> Story:
    story = Story()
    story.invoke(REQUEST, NONCE)
    story.start(REQUEST, RUN)
    story.complete(RUN, T0 + 50)
    story.finish(REQUEST, RUN, NONCE, T0 + decided_ms, **changes)
    record = story.seen.responses[-1]
    story.seen.responses[-1] = replace(record, place=replace(record.place, at_ms=T0 + published_ms))
    return story


def test_a_run_that_expires_at_its_deadline_is_right() -> None:
    assert story_that_ends_at(DEADLINE_MS, DEADLINE_MS + 40, **EXPIRED).verdict().clean


def test_a_run_that_expires_before_its_deadline_is_wrong() -> None:
    assert "wrong_outcomes" in story_that_ends_at(DEADLINE_MS - 1, DEADLINE_MS, **EXPIRED).anomalies()


def test_what_is_answered_fifteen_seconds_after_its_deadline_is_late() -> None:
    due = DEADLINE_MS + 15_000
    assert story_that_ends_at(DEADLINE_MS, due, **EXPIRED).verdict().clean
    assert story_that_ends_at(DEADLINE_MS, due + 1, **EXPIRED).anomalies() == {"late": [REQUEST]}


def test_time_without_a_broker_does_not_count_and_counts_once() -> None:
    story = story_that_ends_at(DEADLINE_MS, DEADLINE_MS + 15_000 + 3_000, **EXPIRED)
    story.strike("freeze-broker", T0 + 1_000, T0 + 3_000)
    story.strike("kill-broker", T0 + 2_000, T0 + 4_000)
    assert story.verdict().clean
    story.seen.responses[0] = later(story.seen.responses[0], 1)
    assert story.anomalies() == {"late": [REQUEST]}


def test_time_without_anything_else_counts() -> None:
    story = story_that_ends_at(DEADLINE_MS, DEADLINE_MS + 15_001, **EXPIRED)
    story.strike("freeze-aggregator", T0 + 1_000, T0 + 9_000)
    assert story.anomalies() == {"late": [REQUEST]}


def test_a_run_that_is_never_finished_is_stuck() -> None:
    story = Story().ask()
    story.start("chaos-7-5", "run-5")
    assert story.anomalies() == {"stuck": ["run-5"]}


def test_whatever_is_published_of_a_run_cancelled_before_is_wrong() -> None:
    story = Story()
    story.invoke(REQUEST, NONCE)
    story.start(REQUEST, RUN)
    story.event("run-cancelled", RUN, T0 + 40)
    story.complete(RUN, T0 + 50)
    story.finish(REQUEST, RUN, NONCE)
    assert story.anomalies() == {"published_after_cancel": [REQUEST]}


def test_a_cancel_that_comes_too_late_changes_nothing() -> None:
    story = Story().ask()
    story.event("run-cancelled", RUN, T0 + 300)
    assert story.verdict().clean


def test_a_cancelled_run_is_right_when_somebody_cancelled_it() -> None:
    story = Story()
    story.event("run-cancelled", RUN, T0 - 5)
    story.invoke(REQUEST, NONCE)
    story.start(REQUEST, RUN)
    story.complete(RUN, T0 + 50)
    story.finish(REQUEST, RUN, NONCE, **CANCELLED)
    assert story.verdict().clean


def test_an_engine_that_starts_a_second_after_the_end_is_told() -> None:
    story = Story().ask()
    story.complete(RUN, T0 + 300 + 1_000 + 20)
    assert story.verdict().clean
    story.complete(RUN, T0 + 300 + 1_000 + 21)
    assert story.anomalies() == {"started_after_end": [RUN]}


def test_an_event_that_is_appended_late_tells_when_its_engine_began() -> None:
    told = {"step": "one", "attempt": 1, "model_class": "quick", "task_at_ms": T0 + 100, "service_ms": 20.0}
    story = Story().ask()
    story.event("step-completed", RUN, T0 + 9_000, **told, queue_ms=1_200.0)
    assert story.verdict().clean
    story.event("step-completed", RUN, T0 + 9_000, **told, queue_ms=1_201.0)
    assert story.anomalies() == {"started_after_end": [RUN]}


@pytest.mark.parametrize("kind", ["freeze-valkey", "kill-valkey", "flush-valkey", "freeze-worker", "freeze-broker"])
def test_without_redis_nobody_could_tell_the_engine(kind: str) -> None:
    story = Story().ask()
    story.complete(RUN, T0 + 5_000)
    story.strike(kind, T0 + 1_000, T0 + 2_000)
    assert story.verdict().clean


def test_a_missing_a_second_and_a_different_bill_are_mismatches() -> None:
    story = Story().ask()
    bill = story.seen.usage.pop()
    assert story.anomalies() == {"usage_mismatches": [REQUEST]}
    story.seen.usage = [bill, bill]
    assert story.verdict().clean
    story.seen.usage = [bill, UsageSeen(bill.place, RUN, bill.value + b" ")]
    assert story.anomalies() == {"usage_mismatches": [REQUEST]}
    story.seen.usage = [UsageSeen(bill.place, RUN, bill.value.replace(b"0.002", b"0.004"))]
    assert story.anomalies() == {"usage_mismatches": [REQUEST]}


def test_a_charge_for_more_attempts_than_there_were_is_a_mismatch() -> None:
    story = Story()
    story.invoke(REQUEST, NONCE)
    story.start(REQUEST, RUN)
    story.finish(REQUEST, RUN, NONCE)
    assert story.anomalies() == {"usage_mismatches": [REQUEST]}


def story_with_a_contradiction() -> Story:
    story = Story().ask()
    story.invoke(REQUEST, f"{NONCE}other", T0 + 500, act="contradict")
    return story


def test_a_contradiction_must_be_dead_lettered() -> None:
    story = story_with_a_contradiction()
    assert story.anomalies() == {"unlettered": [REQUEST]}
    where = story.entries[-1].where
    assert where is not None
    story.letter(where, REQUEST, "idempotency_conflict")
    assert story.verdict().clean


def test_a_good_record_must_not_be_dead_lettered() -> None:
    story = Story().ask()
    story.letter("inference-tasks-quick/3/4", REQUEST, "poison")
    assert story.anomalies() == {"wrongly_lettered": ["inference-tasks-quick/3/4"]}


def test_rubbish_may_be() -> None:
    story = Story().ask()
    story.letter("inference-joins/3/4", "rubbish-1", "undecodable")
    assert story.verdict().clean


def test_a_fault_that_left_no_evidence_fails_the_run() -> None:
    story = Story().ask()
    story.strike("kill-host", T0, T0 + 1, evidence="")
    assert story.anomalies() == {"faults_without_evidence": ["kill-host"]}
    assert story.verdict().faults == {"kill-host": 1}


def test_evidence_may_be_found_in_the_log() -> None:
    story = Story().ask()
    story.letter("inference-joins/3/4", "rubbish-1", "undecodable")
    evidence = Evidence(expected=("dead-letter inference-joins/3/9", "dead-letter inference-joins/3/4"))
    story.strikes.append(Strike("undecodable", "inference-joins", T0, T0 + 1, evidence))
    assert story.verdict().clean


@pytest.mark.parametrize(
    ("mark", "prepare"),
    [
        (f"repeated {REQUEST}", lambda story: story.invoke(REQUEST, NONCE, T0 + 400, act="repeat")),
        (
            f"engine-failing {REQUEST}",
            lambda story: story.event("step-failed", RUN, T0 + 9, code="engine_unavailable"),
        ),
        (f"engine-hanging {REQUEST}", lambda story: story.event("step-completed", RUN, T0 + 9, fallback=1)),
        (f"engine-slow {REQUEST}", lambda story: story.event("step-completed", RUN, T0 + 9, service_ms=600.0)),
        (f"large {REQUEST}", lambda story: story.event("step-completed", RUN, T0 + 9, by_claim_check=True)),
        ("passed-over inference-events/1/2", lambda story: story.seen.passed_over.append("inference-events/1/2")),
        (f"answered {REQUEST}", lambda _: None),
    ],
)
def test_every_mark_is_found_where_it_shows_and_nowhere_else(mark: str, prepare: object) -> None:
    def story() -> Story:
        found = Story().ask()
        found.strikes.append(Strike("kind", "target", T0, T0 + 1, Evidence(expected=(mark,))))
        return found

    if not mark.startswith("answered"):
        assert story().anomalies() == {"faults_without_evidence": ["kind"]}
    told = story()
    assert callable(prepare)
    prepare(told)
    assert told.verdict().clean


def test_the_clients_requests_alone_are_judged() -> None:
    story = Story().ask()
    story.entries.append(Entry("info", "cancel", 0, REQUEST, T0))
    assert story.verdict().clean


def bounded_story() -> Story:
    failed: dict[str, Any] = {"status": "failed", "output": None, "error": {"code": "deadline_exceeded"}}
    story = Story().ask(**failed)
    entry = story.entries[0]
    assert entry.body is not None
    story.entries[0] = replace(entry, body={**entry.body, "pipeline": "bounded"})
    return story


def test_a_step_of_two_seconds_may_time_out_only_while_something_was_away() -> None:
    story = bounded_story()
    story.strike("flush-valkey", T0, T0 + 100)
    assert story.anomalies() == {"wrong_outcomes": [REQUEST]}
    story.strike("freeze-orchestrator", T0 - 9_000, T0 - 1_000)
    assert story.verdict().clean
