"""What one leader has learned the next one knows; a file that cannot be used is none."""

import threading
from pathlib import Path

import pytest

from services.autoscaler import memory
from services.autoscaler.domain.control import Control, Scaled
from services.autoscaler.domain.learned import NOTHING_LEARNED, LearnedQueue, LearnedState
from services.autoscaler.domain.season import DAY_SLOTS, SLOT_S
from services.autoscaler.memory import Memory
from services.chassis.aside import NAME
from tests.unit.autoscaler.graphs import call, graph
from tests.unit.autoscaler.observed import seen
from tests.unit.autoscaler.test_control import RULES
from tests.unit.chassis.test_aside import joined

LLM = Scaled("llm", "llm", RULES)
CHECKED = graph(call("embed", "embedding"), call("check", "llm", when="${true}"))


def experienced() -> Control:
    """Two days of nine tasks a second in the morning, and runs that never take a branch."""
    control = Control()
    control.watch([LLM])
    for slot in range(2 * DAY_SLOTS + 1):
        rate = 9.0 if 54 <= slot % DAY_SLOTS < 60 else 1.0
        control.look({"llm": seen(rate)._replace(start_s=100.0)}, [], float(slot * SLOT_S))
    for number in range(20):
        control.open_runs.start(str(number), CHECKED, 60_000)
        control.open_runs.decide(str(number), "embed", taken=True)
        control.open_runs.decide(str(number), "check", taken=False)
    return control


async def test_the_next_leader_knows_seasons_times_and_branches(tmp_path: Path) -> None:
    kept = Memory(tmp_path / "home" / "autoscaler.json")
    before = experienced()
    await kept.keep(before.learned())
    after = Control(before=await kept.recall())
    after.watch([LLM])
    at_nine = 2 * 86_400.0 + 9 * 3_600.0
    assert after.prediction("llm").season.expected(at_nine) == pytest.approx(9.0)
    assert after.prediction("llm").accuracy == before.prediction("llm").accuracy
    decided = after.look({"llm": seen(None, service_s=None)}, [], at_nine - 350.0).decisions["llm"]
    assert decided.replicas == 3, "a worker takes 100 s to start, and nine tasks a second of a second each come soon"
    after.open_runs.start("r", CHECKED, 1e15)
    assert after.open_runs.needs()["llm"].probability < 0.1


async def test_what_is_learned_once_is_kept_on(tmp_path: Path) -> None:
    kept = Memory(tmp_path / "autoscaler.json")
    state = experienced().learned()
    await kept.keep(state)
    second = Control(before=await kept.recall())
    second.watch([LLM])
    assert second.learned() == state


async def test_what_is_not_configured_for_a_while_is_not_forgotten(tmp_path: Path) -> None:
    state = experienced().learned()
    meanwhile = Control(before=state)
    meanwhile.watch([LLM._replace(label="other", model_class="other")])
    assert meanwhile.learned().queues["llm"] == state.queues["llm"]


def test_what_a_reign_has_learned_of_a_class_outlives_a_configuration_without_it() -> None:
    control = experienced()
    known = control.learned().queues["llm"]
    control.watch([])
    assert control.learned().queues["llm"] == known
    control.watch([LLM])
    assert control.prediction("llm").season.expected(9 * 3_600.0) == pytest.approx(9.0)


async def test_without_a_file_it_begins_anew(tmp_path: Path) -> None:
    assert await Memory(tmp_path / "autoscaler.json").recall() == NOTHING_LEARNED


UNUSABLE = [
    "",
    "{",
    '{"format": 2}',
    '{"queues": {"llm": {"start_s": -1}}}',
    '{"queues": {"llm": {"service_s": 1e300}}}',
    '{"queues": {"llm": {"week": [[0, NaN, 2]]}}}',
    '{"queues": {"llm": {"week": [[0, -1.0, 2]]}}}',
    '{"queues": {"llm": {"day": [[0, 1.0, -1]]}}}',
    '{"steps": [{"pipeline": "ask", "step": "check", "taken": 9.0, "runs": 1.0}]}',
    "\0" * 99,
]


@pytest.mark.parametrize("content", UNUSABLE)
async def test_a_file_that_cannot_be_used_is_none(tmp_path: Path, content: str) -> None:
    file = tmp_path / "autoscaler.json"
    file.write_text(content)
    assert await Memory(file).recall() == NOTHING_LEARNED
    await Memory(file).keep(NOTHING_LEARNED)
    assert await Memory(file).recall() == NOTHING_LEARNED


async def test_a_folder_that_cannot_be_written_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    kept = Memory(tmp_path / "file" / "autoscaler.json")
    await kept.keep(NOTHING_LEARNED)
    assert await kept.recall() == NOTHING_LEARNED


class HangingVolume(Memory):
    """Writes hang until they are let go; what was written is noted."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.go = threading.Event()
        self.written: list[LearnedState] = []

    def _write(self, state: LearnedState) -> None:
        self.go.wait()
        self.written.append(state)
        super()._write(state)


def learned(service_s: float) -> LearnedState:
    return LearnedState(queues={"llm": LearnedQueue(service_s=service_s)})


async def test_on_a_volume_that_hangs_writes_do_not_queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "PATIENCE_S", 0.01)
    volume = HangingVolume(tmp_path / "autoscaler.json")
    for minute in range(20):
        await volume.keep(learned(float(minute)))
    assert [thread.name for thread in threading.enumerate()].count(NAME) == 1
    volume.go.set()
    joined()
    monkeypatch.setattr(memory, "PATIENCE_S", 10.0)
    await volume.keep(learned(20.0))
    assert volume.written == [learned(0.0), learned(20.0)]
    assert await volume.recall() == learned(20.0)


async def test_what_could_not_be_read_is_not_written_over(tmp_path: Path) -> None:
    file = tmp_path / "autoscaler.json"
    await Memory(file).keep(learned(1.0))
    away = tmp_path / "away"
    file.rename(away)
    file.mkdir()
    reopened = Memory(file)
    assert await reopened.recall() == NOTHING_LEARNED
    file.rmdir()
    away.rename(file)
    await reopened.keep(learned(2.0))
    assert await reopened.recall() == learned(1.0)
    await reopened.keep(learned(2.0))
    assert await reopened.recall() == learned(2.0)
