"""The watermark: the commit never passes an unfinished record, and never lags behind without a reason."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from services.chassis.kafka.watermark import Watermark

LIMIT = 8


class WatermarkMachine(RuleBasedStateMachine):
    """Against a plain model: a list of delivered offsets and a set of finished ones."""

    def __init__(self) -> None:
        super().__init__()
        self.watermark = Watermark(limit=LIMIT)
        self.delivered: list[int] = []
        self.finished: set[int] = set()
        self.committed = -1

    @property
    def open(self) -> list[int]:
        return [offset for offset in self.delivered if offset not in self.finished]

    @precondition(lambda self: self.watermark.room)
    @rule(gap=st.integers(0, 3))
    def deliver(self, gap: int) -> None:
        offset = (self.delivered[-1] + 1 if self.delivered else 5) + gap
        self.watermark.delivered(offset)
        self.delivered.append(offset)

    @precondition(lambda self: self.open)
    @rule(data=st.data())
    def finish_any(self, data: st.DataObject) -> None:
        offset = data.draw(st.sampled_from(self.open))
        self.watermark.done(offset)
        self.finished.add(offset)

    @precondition(lambda self: self.finished)
    @rule(data=st.data())
    def finish_again(self, data: st.DataObject) -> None:
        self.watermark.done(data.draw(st.sampled_from(sorted(self.finished))))

    @precondition(lambda self: self.delivered)
    @rule()
    def refuse_to_go_back(self) -> None:
        with pytest.raises(ValueError, match="needs a new watermark"):
            self.watermark.delivered(self.delivered[-1])

    @invariant()
    def the_commit_is_the_first_unfinished_or_the_one_after_the_last(self) -> None:
        after = self.delivered[-1] + 1 if self.delivered else None
        assert self.watermark.committable() == (self.open[0] if self.open else after)

    @invariant()
    def everything_below_the_commit_is_finished(self) -> None:
        committable = self.watermark.committable()
        assert committable is None or self.finished >= {o for o in self.delivered if o < committable}

    @invariant()
    def the_commit_never_goes_back(self) -> None:
        committable = self.watermark.committable()
        if committable is not None:
            assert committable >= self.committed
            self.committed = committable

    @invariant()
    def the_span_is_what_a_crash_would_deliver_again(self) -> None:
        again = [offset for offset in self.delivered if self.open and offset >= self.open[0]]
        assert self.watermark.span == len(again) <= LIMIT
        assert self.watermark.room == LIMIT - len(again)

    @invariant()
    def unfinished_records_are_counted(self) -> None:
        assert self.watermark.unfinished == len(self.open)
        assert self.watermark.oldest_unfinished == (self.open[0] if self.open else None)


TestWatermark = WatermarkMachine.TestCase


def test_a_watermark_without_a_limit_always_has_room() -> None:
    watermark = Watermark()
    for offset in range(10_000):
        watermark.delivered(offset)
    assert watermark.room is None


def test_the_front_moves_as_fast_as_the_back_over_a_long_run() -> None:
    """A million records with one slow one in every hundred: taking from the front must not grow slower."""
    watermark = Watermark()
    for offset in range(200_000):
        watermark.delivered(offset)
        if offset >= 100:
            watermark.done(offset - 100)
            assert watermark.committable() == offset - 99
