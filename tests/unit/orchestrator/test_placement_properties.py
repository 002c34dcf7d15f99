"""Placement and what it looks at: a task goes to its lane, and to no queue that is longer than need be."""

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.orchestrator.domain.outstanding import Outstanding
from services.orchestrator.domain.placement import place, rendezvous

lanes = st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True)
sessions = st.one_of(st.none(), st.text(max_size=8))
turns = st.integers(0, 10**6)


@given(st.data(), lanes, sessions, turns)
def test_a_task_goes_to_the_shortest_queue_or_stays_with_a_session_that_is_not_crowded(
    data: st.DataObject, lane: list[int], session: str | None, turn: int
) -> None:
    queues = {partition: data.draw(st.integers(0, 9)) for partition in lane}
    placed = place(lane, session, queues.__getitem__, turn)
    if session is not None and placed == rendezvous(session, lane):
        is_shortest = queues[placed] == min(queues.values())
        assert is_shortest or queues[placed] * len(lane) <= max(2 * sum(queues.values()), len(lane))
    else:
        assert queues[placed] == min(queues.values())


@given(st.data(), lanes, turns)
def test_equally_short_queues_take_turns(data: st.DataObject, lane: list[int], turn: int) -> None:
    queues = {partition: data.draw(st.integers(0, 2)) for partition in lane}
    shortest = {partition for partition in lane if queues[partition] == min(queues.values())}
    placed = [place(lane, None, queues.__getitem__, turn + more) for more in range(len(shortest))]
    assert set(placed) == shortest


@given(st.data(), lanes, sessions, turns)
def test_one_queue_that_nobody_reports_makes_all_a_guess(
    data: st.DataObject, lane: list[int], session: str | None, turn: int
) -> None:
    unknown = data.draw(st.sampled_from(lane))
    placed = place(lane, session, lambda partition: None if partition == unknown else 0, turn)
    assert placed == (lane[turn % len(lane)] if session is None else rendezvous(session, lane))


@given(lanes, st.text(max_size=8), st.integers(0, 60))
def test_a_session_moves_only_to_the_partition_that_is_new(lane: list[int], session: str, new: int) -> None:
    before, after = rendezvous(session, lane), rendezvous(session, [*lane, new])
    assert after in (before, new)
    assert rendezvous(session, lane[::-1]) == before


class OutstandingMachine(RuleBasedStateMachine):
    """One partition: other orchestrators append too, acknowledgements overtake each other, workers report late."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks = Outstanding()
        self.pending: list[int | None] = []
        """Our sends under way: the offset of each that the broker has appended."""
        self.log_end = 0
        self.seen_end: int | None = None
        self.committed: int | None = None

    @rule()
    def send(self) -> None:
        self.tasks.sent(3)
        self.pending.append(None)

    @rule(count=st.integers(1, 5))
    def another_one_appends(self, count: int) -> None:
        self.log_end += count

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def append(self, data: st.DataObject) -> None:
        waiting = [number for number, offset in enumerate(self.pending) if offset is None]
        if waiting:
            self.pending[data.draw(st.sampled_from(waiting))] = self.log_end
            self.log_end += 1

    @precondition(lambda self: self.pending)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        appended = [offset for offset in self.pending if offset is not None]
        if appended:
            offset = data.draw(st.sampled_from(appended))
            self.pending.remove(offset)
            self.tasks.acknowledged(3, offset)
            self.seen_end = max(self.seen_end or 0, offset + 1)

    @rule(share=st.floats(0, 1))
    def report(self, share: float) -> None:
        self.committed = round(self.log_end * share)
        self.tasks.reported({3: self.committed})

    @rule()
    def fall_silent(self) -> None:
        self.committed = None
        self.tasks.reported({})

    @invariant()
    def it_counts_what_was_appended_and_not_committed_and_what_is_under_way(self) -> None:
        if self.committed is None:
            assert self.tasks.of(3) is None
            return
        known_end = self.committed if self.seen_end is None else max(self.seen_end, self.committed)
        assert self.tasks.of(3) == known_end - self.committed + len(self.pending)

    @invariant()
    def it_never_counts_more_than_there_are(self) -> None:
        found = self.tasks.of(3)
        assert found is None or 0 <= found <= self.log_end - (self.committed or 0) + len(self.pending)


TestOutstanding = OutstandingMachine.TestCase
