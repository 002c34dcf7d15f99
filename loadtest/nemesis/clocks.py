"""The clock of one process, an hour off: a token in the home shifts the next process of a service that starts.

The plane must have been started with `environment()`, by which every service imports `skewed/sitecustomize.py`.
"""

from pathlib import Path

from loadtest.nemesis.fault import Evidence
from loadtest.nemesis.parts import Parts
from loadtest.nemesis.processes import kill

TOKENS = "skewed"
"""Folder in the home: `<service>` is a token, `<service>.<pid>` one that was taken."""


def environment() -> dict[str, str]:
    """What services must be started with."""
    return {"PYTHONPATH": str(Path(__file__).parent / "skewed")}


async def shift(parts: Parts, part: str, service: str, by_s: float) -> Evidence:
    """The part is started again with its clock `by_s` seconds off, and keeps it for as long as it lives."""
    folder = parts.home / TOKENS
    folder.mkdir(exist_ok=True)
    token = folder / service
    token.write_text(str(by_s))
    killed = await kill(parts, part)
    token.unlink(missing_ok=True)
    taken = [file.name for file in folder.glob(f"{service}.*") if file.name.endswith(f".{parts.pid(part)}")]
    return Evidence(f"{killed.seen} with its clock {by_s:+g} s off") if killed.seen and taken else Evidence()
