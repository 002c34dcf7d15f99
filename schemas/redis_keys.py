"""Redis keys and channels, in one place. Redis holds no truth: each of these may vanish at any moment."""

from collections.abc import Iterable
from typing import NamedTuple

from schemas.base import LogTime

DEAD_RUN_TTL_S = 3_600
"""How long it is remembered that a run is over, at most: until shortly after its deadline its tasks are expired."""

DEAD_RUNS_CHANNEL = "dead-runs"
"""Runs that are over, as they end: `encode_ended_runs` of one or more."""


class EndedRun(NamedTuple):
    """A run that is over. Its id may live again later: the deadline tells one life of it from the next."""

    run_id: str
    deadline_at: LogTime


def encode_ended_runs(runs: Iterable[EndedRun]) -> str:
    """`<run id>@<deadline>`, separated by spaces: one publish tells of a whole batch."""
    return " ".join(f"{run.run_id}@{run.deadline_at}" for run in runs)


def decode_ended_runs(message: str) -> list[EndedRun]:
    """What `encode_ended_runs` wrote; words that it did not write are passed over."""
    words = (word.rpartition("@") for word in message.split())
    return [EndedRun(run_id, int(at)) for run_id, _, at in words if run_id and at.isascii() and at.isdigit()]


def dead_run_key(run_id: str) -> str:
    """Holds the deadline of a run that is over, until that has passed: its tasks, which carry the same deadline, are
    dropped or stopped, also those dispatched, or delivered again, after its end.
    """
    return f"dead:{run_id}"


def text_channel(run_id: str) -> str:
    """Where a run's text is published as it comes: `TextPiece`s, heard by whoever is subscribed at the time.

    Run ids are no secret: they follow from tenant and request id. Who can connect to the store can hear everybody's,
    as they can read every topic of a plane without access rights.
    """
    return f"text:{run_id}"


def claim_key(run_id: str, step: str, deadline_at: LogTime) -> str:
    """Who runs a step: `<attempt> <owner> <deaths>` under a lease and for a while after it.

    The deaths are those of earlier holders, or `alone` while the owner runs nothing else. `<attempt> - <deaths>` was
    given up in order; `<attempt> done` stays until the step's deadline has passed.

    The run's deadline tells one life of a run id from the next. `2` is the version of all this: a worker that writes
    claims in other words, or keeps them for another time, has other keys. Where two versions work side by side a task
    may then run twice; with the same keys the first version waited 300 s for what the second one had given up.
    """
    return f"claim2:{run_id}/{deadline_at}/{step}"
