"""When the supervisor gives a part up."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from headway.plane import supervisor
from headway.plane.errors import PlaneError
from headway.plane.ports import choose_ports
from headway.plane.process import Server
from headway.plane.supervisor import KAFKA_RESTARTS, Backoff, Plane


class Part(Server):
    """Ends when it is told to. From then on every start takes a minute, and fails."""

    bootstrap, url = "127.0.0.1:1", "redis://127.0.0.1:1/0"

    def __init__(self, name: str, folder: Path, code: int = 0) -> None:
        super().__init__(name, folder / f"{name}.log", None)
        self._code = code
        self.ended = asyncio.Event()
        self.failed_starts = 0
        self.now_s = 0.0

    async def start(self, _: Callable[[str], None]) -> None:
        if self.ended.is_set():
            self.failed_starts += 1
            self.now_s += 60
            raise PlaneError(f"{self.name} did not start: it was not ready after 60 s")

    async def wait(self) -> int:
        await self.ended.wait()
        return self._code


@pytest.mark.parametrize("code", [1, 0], ids=["fails", "ends-in-order-when-it-is-stopped"])
async def test_a_kafka_that_takes_a_minute_to_fail_is_given_up_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    kafka, valkey = Part("kafka", tmp_path, code), Part("valkey", tmp_path)
    monkeypatch.setattr(supervisor, "EmbeddedKafka", lambda *_: kafka)
    monkeypatch.setattr(supervisor, "EmbeddedValkey", lambda *_: valkey)
    monkeypatch.setattr(supervisor, "time", SimpleNamespace(monotonic=lambda: kafka.now_s))
    monkeypatch.setattr(Backoff, "FIRST_S", 0.0)
    plane = Plane(tmp_path, choose_ports("auto"), (), None, lambda *_: None)
    await plane.start()
    kafka.ended.set()
    try:
        with pytest.raises(PlaneError, match=rf"kafka ended with exit code {code}"):
            await asyncio.wait_for(plane.wait(), 5)
    finally:
        await plane.stop()
    assert kafka.failed_starts == KAFKA_RESTARTS
