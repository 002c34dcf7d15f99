"""What passes between a fork server and who asks it: one line of JSON each."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, TypeAdapter


class _Message(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Fork(_Message):
    """Become such a process. Answered by `Forked` or `NotForked`, in the order of the questions."""

    title: str
    """As process listings show it."""
    arguments: tuple[str, ...]
    environment: dict[str, str]
    """On top of that of the fork server."""
    log: Path | None
    """Its output is appended there; None: it goes where that of the fork server goes."""


class Signal(_Message):
    """For a child; one that has ended gets none."""

    pid: int
    signal: int


class Forked(_Message):
    """It runs."""

    forked: int
    """Its process id."""


class NotForked(_Message):
    """The machine has no room for another process."""

    not_forked: str


class Ended(_Message):
    """A child has ended; its process id may be another's from now on."""

    ended: int
    exit_code: int
    """Negative: the signal that ended it."""


Order = Fork | Signal
News = Forked | NotForked | Ended

ORDER: TypeAdapter[Order] = TypeAdapter(Order)
NEWS: TypeAdapter[News] = TypeAdapter(News)


def line(message: Order | News) -> bytes:
    """As it is sent."""
    return message.model_dump_json().encode() + b"\n"
