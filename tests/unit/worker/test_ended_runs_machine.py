"""Ends of runs as they are heard: the newest thousands are known, for as long as a task could run."""

from collections.abc import Iterator

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from schemas.redis_keys import DEAD_RUN_TTL_S, EndedRun
from services.worker import ended_runs as module
from services.worker.ended_runs import EndedRuns

LIMIT = 3
NAMES = ("r1", "r2", "r3", "r4", "r5")
LIVES = (100, 200, 300)


@pytest.fixture(autouse=True, scope="module")
def few() -> Iterator[None]:
    """So that a short log comes to the bound."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "REMEMBERED", LIMIT)
        yield


class EndedRunsMachine(RuleBasedStateMachine):
    """Against a list of all that was heard, newest last."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.ended = EndedRuns(lambda: self.now_s)
        self.told: list[EndedRun] = []
        self.ended.listen(self.told.append)
        self.heard: dict[str, tuple[int, float]] = {}
        self.count = 0

    @rule(seconds=st.sampled_from([1.0, DEAD_RUN_TTL_S / 2, DEAD_RUN_TTL_S - 1, DEAD_RUN_TTL_S + 1.0]))
    def wait(self, seconds: float) -> None:
        self.now_s += seconds

    @rule(name=st.sampled_from(NAMES), life=st.sampled_from(LIVES))
    def end(self, name: str, life: int) -> None:
        self.ended.add(EndedRun(name, life))
        self.count += 1
        self.heard.pop(name, None)
        self.heard[name] = (life, self.now_s)

    @invariant()
    def the_newest_are_known_for_their_time(self) -> None:
        for name in list(self.heard)[-LIMIT:]:
            life, heard_s = self.heard[name]
            if self.now_s - heard_s <= DEAD_RUN_TTL_S:
                assert self.ended.covers(name, life)

    @invariant()
    def nothing_else_is_taken_for_ended(self) -> None:
        for name in NAMES:
            latest = self.heard.get(name, (-1, 0.0))[0]
            for life in LIVES:
                assert life == latest or not self.ended.covers(name, life)

    @invariant()
    def no_more_are_kept_than_that(self) -> None:
        assert len(self.ended) <= LIMIT
        assert len(self.told) == self.count


TestEndedRuns = EndedRunsMachine.TestCase
