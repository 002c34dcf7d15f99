"""The clock of one process, an hour off: a token in the home shifts the next process of a service that starts.

The plane must have been started with `environment()`, by which every service imports `skewed/sitecustomize.py`.
"""

from pathlib import Path

from loadtest.nemesis.fault import Evidence, until
from loadtest.nemesis.parts import Parts
from loadtest.nemesis.processes import kill

TAKEN_WITHIN_S = 30.0
TOKENS = "skewed"
"""Folder in the home: `<service>` is a token, `<service>.<pid>` one that was taken."""


def environment() -> dict[str, str]:
    """What services must be started with."""
    return {"PYTHONPATH": str(Path(__file__).parent / "skewed")}


async def shift(parts: Parts, part: str, service: str, by_s: float) -> Evidence:
    """The part is started again with its clock `by_s` seconds off, and keeps it for as long as it lives."""
    token = parts.home / TOKENS / service
    before = _taken(token)
    _put(token, by_s)
    killed = await kill(parts, part)
    await until(lambda: not token.exists(), TAKEN_WITHIN_S)
    by = [pid for pid in _taken(token) if pid not in before]
    token.unlink(missing_ok=True)
    if not killed.seen or not by:
        return Evidence()
    return Evidence(f"{killed.seen}; the clock of pid {by[0]} is {by_s:+g} s off")


def _put(token: Path, by_s: float) -> None:
    token.parent.mkdir(exist_ok=True)
    token.write_text(str(by_s))


def _taken(token: Path) -> list[str]:
    """The processes that have taken one."""
    return [taken.suffix.removeprefix(".") for taken in token.parent.glob(f"{token.name}.*")]
