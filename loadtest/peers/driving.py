"""What all drivers do alike: calls in closed loops, by the same clock, and their figures as JSON lines in a file.

Only the standard library: the interpreter of every peer reads this.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from loadtest.peers.work import ANSWER

CALL_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Trial:
    """So many callers take turns for so long. What ends during the warm-up is not counted."""

    callers: int
    warm_up_s: float
    duration_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What a driver is told."""

    trials: tuple[Trial, ...]
    installed: str
    """Where the peer's packages are."""
    folder: str
    """The driver's own, for data; removed when it has ended."""
    ports: tuple[int, ...]
    """Free ones on 127.0.0.1."""
    kafka: str
    """The address of Headway's broker, for Headway's driver."""

    def as_argument(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> "Plan":
        told = json.loads(text)
        trials = tuple(Trial(**trial) for trial in told.pop("trials"))
        return cls(trials=trials, ports=tuple(told.pop("ports")), **told)


@dataclass(slots=True)
class ClosedLoop:
    """One trial as it goes. A caller makes its next call when its last one has ended."""

    trial: Trial
    clock: Callable[[], float] = time.perf_counter
    latencies_s: list[float] = field(default_factory=list)
    failed: int = 0
    _counted_from: float = 0.0
    _end: float = 0.0

    def __post_init__(self) -> None:
        self._counted_from = self.clock() + self.trial.warm_up_s
        self._end = self._counted_from + self.trial.duration_s

    @property
    def is_open(self) -> bool:
        """Whether callers make calls still."""
        return self.clock() < self._end

    def ended(self, begun: float, answer: object) -> None:
        """Counts a call that ended in time, as failed unless it has the right answer."""
        now = self.clock()
        if not self._counted_from <= now < self._end:
            return
        if answer == ANSWER:
            self.latencies_s.append(now - begun)
        else:
            self.failed += 1

    def figures(self) -> dict[str, Any]:
        """As a line of JSON has it, with every latency."""
        latencies_s = [round(latency, 6) for latency in self.latencies_s]
        return {**asdict(self.trial), "failed": self.failed, "latencies_s": latencies_s}


class Report:
    """A file of JSON lines: first what the system is, then a line for each trial."""

    def __init__(self, file: Path, version: str, settings: Mapping[str, Any]) -> None:
        self._file = file
        self._write({"version": version, "settings": settings})

    def add(self, loop: ClosedLoop) -> None:
        self._write(loop.figures())

    def _write(self, line: Mapping[str, Any]) -> None:
        with self._file.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


def told() -> tuple[Plan, Path]:
    """From the command line: the plan, and the file to report to."""
    return Plan.from_argument(sys.argv[1]), Path(sys.argv[2])


async def drive(plan: Plan, call: Callable[[], Awaitable[object]], report: Report) -> None:
    """All trials, one after another, for a system whose client is asyncio's."""
    for trial in plan.trials:
        loop = ClosedLoop(trial)
        await asyncio.gather(*(_take_turns(loop, call) for _ in range(trial.callers)))
        report.add(loop)


async def _take_turns(loop: ClosedLoop, call: Callable[[], Awaitable[object]]) -> None:
    while loop.is_open:
        begun = loop.clock()
        loop.ended(begun, await _answer(call))


async def _answer(call: Callable[[], Awaitable[object]]) -> object:
    try:
        async with asyncio.timeout(CALL_TIMEOUT_S):
            return await call()
    except Exception as error:  # of whatever kind: the call failed
        print(f"a call failed: {error!r}", flush=True)
        return None


@contextmanager
def server(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[None]:
    """A program of the peer's while the block runs; its output goes where the driver's goes."""
    process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def until(ready: Callable[[], bool], timeout_s: float) -> None:
    """Asks again and again. Raises TimeoutError."""
    give_up = time.monotonic() + timeout_s
    while not ready():
        if time.monotonic() > give_up:
            raise TimeoutError(f"a server was not ready after {timeout_s:.0f} s")
        time.sleep(0.1)
