"""The waterfall draws every step on one scale."""

import io

from rich.console import Console

from headway.cli.output import PIPE_WIDTH
from headway.cli.timeline import Attempt, StepTimeline, Timeline
from headway.cli.waterfall import COLD, COORDINATION, FAILED, QUEUE, SERVICE, bar, waterfall
from schemas.base import StepStatus
from schemas.errors import ErrorCode, ErrorDetail
from schemas.graphs import StepKind


def attempt(ended_ms: float, *, queue: float = 0, cold: float = 0, service: float = 0, ok: bool = True) -> Attempt:
    error = None if ok else ErrorDetail(code=ErrorCode.ENGINE_FAILED, message="it \x1b[31mbroke")
    return Attempt(1, 0, "local", ok, ended_ms, queue, cold, service, 0.0, error)


def step(*attempts: Attempt, enabled: float | None = 0, status: StepStatus = StepStatus.SUCCEEDED) -> StepTimeline:
    ended = attempts[-1].ended_ms if attempts else None
    return StepTimeline("a", StepKind.MODEL, status, "llm", "local", enabled, ended, attempts)


def test_a_bar_shows_each_part_where_it_was() -> None:
    drawn = bar(step(attempt(100, cold=20, queue=20, service=40)), total_ms=100, width=10)
    assert drawn == COORDINATION * 2 + COLD * 2 + QUEUE * 2 + SERVICE * 4


def test_a_short_part_is_still_seen() -> None:
    assert SERVICE in bar(step(attempt(1_000, service=0.1)), total_ms=1_000, width=10)


def test_a_failed_attempt_is_marked_where_it_ended() -> None:
    failed_then_ok = step(attempt(50, service=30, ok=False), attempt(100, service=30))
    assert bar(failed_then_ok, total_ms=100, width=10)[5] == FAILED


def test_a_step_that_has_not_begun_is_blank_and_an_open_one_reaches_the_end() -> None:
    assert bar(step(enabled=None, status=StepStatus.PENDING), 100, 10).strip() == ""
    assert bar(step(enabled=50, status=StepStatus.READY), 100, 10) == " " * 5 + COORDINATION * 5


def test_a_bar_never_leaves_its_width() -> None:
    late = step(attempt(300, service=10), enabled=250)
    assert len(bar(late, total_ms=100, width=10)) == 10
    assert len(bar(late, total_ms=0, width=10)) == 10


def test_foreign_text_cannot_move_the_cursor() -> None:
    run = Timeline(
        "run-1", "id\x1b[2J", "default", "ask", 1, "failed", 100, (step(attempt(100, ok=False)),), ("a",), 0.0
    )
    out = io.StringIO()
    console = Console(file=out, width=PIPE_WIDTH, markup=False)
    for part in waterfall(run):
        console.print(part)
    assert "\x1b" not in out.getvalue()
    assert "id\\x1b[2J" in out.getvalue()
    assert "engine_failed: it \\x1b[31mbroke" in out.getvalue()
