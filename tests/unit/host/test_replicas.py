"""Which workers are started, replaced and killed: every rule, and what holds whatever happens."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from services.host.domain.replicas import (
    BOOT_S,
    FAILING_AFTER,
    KILL_AFTER_S,
    LAST_BACKOFF_S,
    PROVEN_S,
    SILENT_S,
    STUCK_S,
    Action,
    Answer,
    Forget,
    Kill,
    Replica,
    Sleep,
    Start,
    State,
    Stop,
    Wake,
    Worker,
    after_exit,
    decide,
    heard,
)

A, B, C = THREE = Replica("llm", 0, "v1"), Replica("llm", 1, "v1"), Replica("embedding", 0, "v1")
A2, B2, C2 = HEIRS = tuple(replica._replace(version="v2") for replica in THREE)
NOW = 1_000.0


def worker(state: State, *, since: float = NOW, failures: int = 0) -> Worker:
    return Worker(state, since, NOW, failures, was_ready=state in ("ready", "dozing", "asleep"))


STATES_OF_SLEEPERS: list[tuple[State, list[Action]]] = [
    ("starting", []), ("ready", [Sleep(A)]), ("dozing", []), ("asleep", []),
]  # fmt: skip
STATES_OF_WORKERS: list[tuple[State, list[Action]]] = [
    ("starting", []), ("ready", []), ("dozing", [Wake(A)]), ("asleep", [Wake(A)]),
]  # fmt: skip


class TestBoots:
    """Workers whose engines begin at once take each other's cores."""

    def test_no_more_boot_at_once_than_there_are_cores(self) -> None:
        assert decide(THREE, {}, NOW, cores=2) == [Start(A), Start(B)]
        assert decide(THREE, {A: worker("starting")}, NOW, cores=2) == [Start(B)]
        assert decide(THREE, {A: worker("starting"), B: worker("starting")}, NOW, cores=2) == []

    @pytest.mark.parametrize("answer", ["ready", "asleep"])
    def test_the_next_one_follows_when_one_is_what_it_is_to_be(self, answer: Answer) -> None:
        begun = heard(worker("starting"), NOW + 0.1, "neither")
        assert decide(THREE, {A: begun, B: worker("starting")}, NOW + 0.1, cores=2) == []
        there = heard(begun, NOW + 0.2, answer)
        asleep = {A} if answer == "asleep" else set()
        assert decide(THREE, {A: there, B: worker("starting")}, NOW + 0.2, asleep, cores=2) == [Start(C)]

    @pytest.mark.parametrize("answers", [(), ("neither",)])
    def test_one_that_takes_long_holds_up_nobody(self, answers: Sequence[Answer]) -> None:
        slow = worker("starting")
        for answer in answers:
            slow = heard(slow, NOW + 0.1, answer)
        assert decide(THREE, {A: slow, B: slow}, NOW + BOOT_S - 0.1, cores=2) == []
        assert decide(THREE, {A: slow, B: slow}, NOW + BOOT_S, cores=2) == [Start(C)]


class TestDecide:
    def test_what_is_wanted_and_absent_is_started(self) -> None:
        assert decide([A, C], {}, NOW) == [Start(A), Start(C)]

    def test_what_runs_as_wanted_is_left_alone(self) -> None:
        assert decide([A, B], {A: worker("ready"), B: worker("starting")}, NOW) == []

    def test_what_runs_and_is_not_wanted_falls_asleep_first_and_is_then_stopped(self) -> None:
        assert decide([], {A: worker("ready")}, NOW) == [Sleep(A)]
        assert decide([], {A: worker("dozing")}, NOW) == []
        assert decide([], {A: worker("asleep")}, NOW) == [Stop(A)]

    def test_what_was_never_ready_and_is_not_wanted_is_stopped_at_once(self) -> None:
        assert decide([], {A: worker("starting")}, NOW) == [Stop(A)]

    def test_what_is_not_ready_at_the_moment_may_have_tasks(self) -> None:
        assert decide([], {A: heard(worker("ready"), NOW, "neither")}, NOW) == [Sleep(A)]

    def test_what_is_to_sleep_is_started_asleep_or_put_to_sleep(self) -> None:
        assert decide([A], {}, NOW, [A]) == [Start(A, asleep=True)]
        for state, actions in STATES_OF_SLEEPERS:
            assert decide([A], {A: worker(state)}, NOW, [A]) == actions

    def test_what_sleeps_and_is_to_work_is_woken(self) -> None:
        for state, actions in STATES_OF_WORKERS:
            assert decide([A], {A: worker(state)}, NOW) == actions

    def test_what_is_down_and_not_wanted_is_forgotten(self) -> None:
        assert decide([], {A: worker("down", failures=3)}, NOW) == [Forget(A)]

    def test_what_is_stopping_is_waited_for_and_then_killed(self) -> None:
        stopping = worker("stopping")
        for wanted in ([], [A], [A2]):
            assert decide(wanted, {A: stopping}, NOW + KILL_AFTER_S - 0.01) == []
            assert decide(wanted, {A: stopping}, NOW + KILL_AFTER_S) == [Kill(A)]

    @pytest.mark.parametrize("state", ["starting", "ready"])
    def test_what_no_longer_answers_is_killed(self, state: State) -> None:
        assert decide([A], {A: worker(state)}, NOW + SILENT_S - 0.01) == []
        assert decide([A], {A: worker(state)}, NOW + SILENT_S) == [Kill(A)]

    def test_what_failed_is_started_again_after_a_growing_wait(self) -> None:
        for failures, wait_s in ((1, 0.5), (2, 1.0), (3, 2.0), (6, LAST_BACKOFF_S), (60, LAST_BACKOFF_S)):
            down = {A: worker("down", failures=failures)}
            assert decide([A], down, NOW + wait_s - 0.01) == []
            assert decide([A], down, NOW + wait_s) == [Start(A)]


class TestReplacing:
    def test_a_new_version_of_what_failed_is_tried_at_once(self) -> None:
        assert decide([A2], {A: worker("down", failures=9)}, NOW) == [Forget(A), Start(A2)]

    def test_an_outdated_worker_that_never_got_ready_is_stopped_at_once(self) -> None:
        workers = {A: worker("starting"), B2: worker("ready")}
        assert decide([A2, B2], workers, NOW) == [Stop(A)]
        workers[A] = worker("stopping")
        assert decide([A2, B2], workers, NOW) == []
        del workers[A]
        assert decide([A2, B2], workers, NOW) == [Start(A2)]

    def test_an_outdated_worker_works_until_its_heir_is_ready_and_then_ends_its_tasks(self) -> None:
        workers = {A: worker("ready")}
        assert decide([A2], workers, NOW) == [Start(A2)]
        workers[A2] = worker("starting")
        assert decide([A2], workers, NOW) == []
        workers[A2] = worker("ready")
        assert decide([A2], workers, NOW) == [Sleep(A)]
        workers[A] = worker("dozing")
        assert decide([A2], workers, NOW) == []
        workers[A] = worker("asleep")
        assert decide([A2], workers, NOW) == [Stop(A)]

    def test_its_heir_may_be_unwell_for_a_moment_later(self) -> None:
        workers = {A: worker("dozing"), A2: heard(worker("ready"), NOW, "neither")}
        assert decide([A2], workers, NOW) == []

    def test_it_stays_while_its_heir_fails_and_others_of_its_class_with_it(self) -> None:
        workers = {A: worker("ready"), B: worker("ready"), A2: worker("down", failures=5)}
        assert decide([A2, B2], workers, NOW) == []
        assert decide([A2, B2], workers, NOW + LAST_BACKOFF_S) == [Start(A2)]

    def test_one_that_no_longer_answers_is_killed_whatever_its_heir_does(self) -> None:
        workers = {A: worker("ready"), A2: replace(worker("starting"), heard_at=NOW + SILENT_S)}
        assert decide([A2], workers, NOW + SILENT_S) == [Kill(A)]

    def test_what_comes_back_into_force_works_on(self) -> None:
        assert decide([A], {A: worker("ready"), A2: worker("starting")}, NOW) == [Stop(A2)]
        assert decide([A], {A: worker("dozing"), A2: worker("ready")}, NOW) == [Wake(A)]

    def test_outdated_workers_are_replaced_one_at_a_time(self) -> None:
        workers = dict.fromkeys(THREE, worker("ready"))
        assert decide(HEIRS, workers, NOW) == [Start(A2)]
        workers[A2] = worker("starting")
        assert decide(HEIRS, workers, NOW) == []
        workers |= {A: worker("dozing"), A2: worker("ready")}
        assert decide(HEIRS, workers, NOW) == [Start(B2)], "it waited for tasks that may take minutes"

    def test_without_room_for_both_an_outdated_worker_goes_first(self) -> None:
        workers = {A: worker("ready")}
        assert decide([A2], workers, NOW, full_for=["llm"]) == [Sleep(A)]
        workers[A] = worker("dozing")
        assert decide([A2], workers, NOW, full_for=["llm"]) == []
        workers[A] = worker("asleep")
        assert decide([A2], workers, NOW, full_for=["llm"]) == [Stop(A)]
        assert decide([A2], {}, NOW, full_for=["llm"]) == [Start(A2)]

    def test_without_room_the_others_of_its_class_work_until_its_heir_is_ready(self) -> None:
        wanted, workers = [A2, B2, C2], {A: worker("dozing"), B: worker("ready"), C: worker("ready")}
        assert decide(wanted, workers, NOW, full_for=["llm"]) == [Start(C2)]
        workers = {A2: worker("ready"), B: worker("ready"), C2: worker("ready")}
        assert decide(wanted, workers, NOW, full_for=["llm"]) == [Sleep(B)]

    def test_room_that_comes_free_meanwhile_is_taken(self) -> None:
        assert decide([A2], {A: worker("dozing")}, NOW) == [Start(A2)]

    def test_an_outdated_sleeper_makes_way_at_once(self) -> None:
        for asleep in ([A2], []):
            assert decide([A2], {A: worker("asleep")}, NOW, asleep) == [Stop(A)]
            assert decide([A2], {A: worker("stopping")}, NOW, asleep) == []
        assert decide([A2], {}, NOW, [A2]) == [Start(A2, asleep=True)]

    def test_for_an_heir_that_is_to_sleep_no_worker_waits(self) -> None:
        assert decide([A2], {A: worker("ready")}, NOW, [A2]) == [Sleep(A)]
        assert decide([A2], {A: worker("dozing")}, NOW, [A2]) == [Start(A2, asleep=True)]

    def test_a_class_that_has_lost_a_worker_keeps_the_others_it_has(self) -> None:
        assert decide([A2, B2], {A2: worker("down", failures=5), B: worker("ready")}, NOW) == []

    def test_a_class_that_fails_does_not_keep_another_from_its_new_version(self) -> None:
        assert decide([A, C2], {A: worker("down", failures=5), C: worker("ready")}, NOW) == [Start(C2)]


class TestExit:
    def test_what_was_asked_to_end_leaves_nothing(self) -> None:
        assert after_exit(worker("stopping"), NOW) is None

    @pytest.mark.parametrize("state", ["starting", "ready"])
    def test_what_ends_unasked_has_failed(self, state: State) -> None:
        left = after_exit(worker(state, failures=2), NOW + 1)
        assert left is not None
        assert (left.state, left.failures, left.retry_at) == ("down", 3, NOW + 1 + 2.0)

    def test_what_had_lived_long_has_failed_for_the_first_time(self) -> None:
        left = after_exit(heard(worker("starting", failures=9), NOW, "ready"), NOW + PROVEN_S)
        assert left is not None
        assert left.failures == 1

    def test_what_took_long_to_fail_without_ever_being_ready_has_failed_again(self) -> None:
        left = after_exit(heard(worker("starting", failures=9), NOW, "neither"), NOW + PROVEN_S)
        assert left is not None
        assert left.failures == 10


class TestHeard:
    @pytest.mark.parametrize(
        ("before", "answer", "after"),
        [
            ("starting", "ready", "ready"),
            ("starting", "neither", "starting"),
            ("ready", "neither", "starting"),
            ("dozing", "ready", "ready"),
            ("dozing", "neither", "dozing"),
            ("dozing", "asleep", "asleep"),
            ("asleep", "neither", "starting"),
        ],
    )
    def test_a_side_door_tells_how_its_worker_is(self, before: State, answer: Answer, after: State) -> None:
        told = heard(worker(before), NOW + 1, answer)
        assert (told.state, told.heard_at) == (after, NOW + 1)


class TestFailing:
    def test_three_failures_in_a_row_are_too_many_whether_it_runs_again_or_waits(self) -> None:
        down: State = "down"
        starting: State = "starting"
        for state in (down, starting):
            assert not worker(state, failures=FAILING_AFTER - 1).is_failing(NOW)
            assert worker(state, failures=FAILING_AFTER).is_failing(NOW + 600)

    def test_one_that_does_not_become_ready_fails_without_ever_having_ended(self) -> None:
        assert not worker("starting").is_failing(NOW + STUCK_S - 1)
        assert worker("starting").is_failing(NOW + STUCK_S)
        assert not heard(worker("asleep"), NOW, "neither").is_failing(NOW + STUCK_S), "it wakes"

    def test_it_fails_no_more_once_it_has_been_ready_for_a_while(self) -> None:
        ready = heard(worker("starting", failures=9), NOW, "ready")
        assert ready.is_failing(NOW + PROVEN_S - 0.1)
        assert not ready.is_failing(NOW + PROVEN_S)


PLACES = st.sampled_from([("llm", 0), ("llm", 1), ("embedding", 0)])
VERSIONS = st.sampled_from(["v1", "v2", "v3"])


class Host(RuleBasedStateMachine):
    """Workers that get ready, die and hang at any time, under orders that change at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.wanted: list[Replica] = []
        self.asleep: set[Replica] = set()
        self.full_for: set[str] = set()
        self.workers: dict[Replica, Worker] = {}

    @rule(wanted=st.dictionaries(PLACES, VERSIONS), asleep=st.sets(PLACES))
    def order(self, wanted: dict[tuple[str, int], str], asleep: set[tuple[str, int]]) -> None:
        self.wanted = [Replica(*place, version) for place, version in wanted.items()]
        self.asleep = {replica for replica in self.wanted if replica.place in asleep}

    @rule(labels=st.sets(st.sampled_from(["llm", "embedding"])))
    def fill(self, labels: set[str]) -> None:
        self.full_for = labels

    @rule(seconds=st.floats(0, 20))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        self.workers = {
            replica: replace(worker, heard_at=self.now) if worker.is_live else worker
            for replica, worker in self.workers.items()
        }

    @rule(data=st.data(), answer=st.sampled_from(["ready", "asleep", "neither"]))
    def hear(self, data: st.DataObject, answer: Answer) -> None:
        live = [replica for replica, worker in self.workers.items() if worker.is_live]
        if live:
            replica = data.draw(st.sampled_from(live))
            self.workers[replica] = heard(self.workers[replica], self.now, answer)

    @rule(data=st.data())
    def end(self, data: st.DataObject) -> None:
        running = [replica for replica, worker in self.workers.items() if worker.state != "down"]
        if running:
            self._exit(data.draw(st.sampled_from(running)))

    @rule()
    def act(self) -> None:
        before = dict(self.workers)
        serving = self._served()
        for action in decide(self.wanted, self.workers, self.now, self.asleep, full_for=self.full_for):
            if isinstance(action, Start):
                assert action.replica not in before or before[action.replica].state == "down", "it runs already"
                failures = before[action.replica].failures if action.replica in before else 0
                self.workers[action.replica] = Worker("starting", self.now, self.now, failures)
            elif isinstance(action, Stop):
                assert before[action.replica].state == "asleep" or not before[action.replica].was_ready, "cut short"
                self.workers[action.replica] = replace(before[action.replica], state="stopping", since=self.now)
            elif isinstance(action, Kill):
                self._exit(action.replica)
            elif isinstance(action, Forget):
                del self.workers[action.replica]
            else:
                assert before[action.replica].was_ready, "it may not listen to signals yet, and die of them"
                told: State = "dozing" if isinstance(action, Sleep) else "starting"
                self.workers[action.replica] = replace(before[action.replica], state=told)
        unserved = serving - self._served()
        assert len(unserved) <= 1, "more than one serving worker was taken away at once"
        assert {label for label, _ in unserved} <= self.full_for, "one was, though its heir had room beside it"

    def _served(self) -> set[tuple[str, int]]:
        """Places where a worker is to work, and one does."""
        to_work = {replica.place for replica in self.wanted if replica not in self.asleep}
        return {replica.place for replica, worker in self.workers.items() if worker.serves} & to_work

    def _exit(self, replica: Replica) -> None:
        left = after_exit(self.workers.pop(replica), self.now)
        if left is not None:
            self.workers[replica] = left

    @invariant()
    def it_settles_once_workers_behave(self) -> None:
        """From any state, workers that do what they are told end up as ordered, in bounded time."""
        copy = Host()
        copy.now, copy.wanted, copy.workers = self.now, self.wanted, dict(self.workers)
        copy.asleep, copy.full_for = self.asleep, self.full_for
        for _ in range(60):
            copy.act()
            copy.now += 1
            for replica, worker in list(copy.workers.items()):
                if worker.state == "stopping":
                    copy._exit(replica)
                elif worker.is_live:
                    rests = worker.state in ("dozing", "asleep") or (not worker.was_ready and replica in self.asleep)
                    copy.workers[replica] = heard(worker, copy.now, "asleep" if rests else "ready")
        assert copy.workers.keys() == set(copy.wanted)
        for replica, worker in copy.workers.items():
            assert worker.state == ("asleep" if replica in self.asleep else "ready")


TestHost = Host.TestCase
TestHost.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@given(st.floats(0, 1e6), st.integers(1, 10_000))
def test_a_wait_is_never_longer_than_its_bound(since: float, failures: int) -> None:
    assert worker("down", since=since, failures=failures).retry_at <= since + LAST_BACKOFF_S
