"""The file in which a leader writes down what it has learned, for the next one to begin with.

Autoscalers on several machines need a folder that all of them see; without one each knows what itself has learned.
A season that is lost is learned again in days, so nothing waits for the file, and no failure of it ends a process.
"""

import asyncio
from pathlib import Path

from pydantic import ValidationError

from services.autoscaler.domain.learned import NOTHING_LEARNED, LearnedState
from services.chassis.logging import log, reason

MAX_BYTES = 32 << 20
"""Of a hundred queues, each with all of its week."""
PATIENCE_S = 2.0
"""A volume that hangs must not hold up whoever is to lead."""


class Memory:
    """One file, written beside and renamed: never seen half."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def recall(self) -> LearnedState:
        """What is in the file; nothing, and a line in the log that says why, where it cannot be used."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await asyncio.to_thread(self._read)
        except FileNotFoundError:
            log.info("begins_without_memory", file=str(self._file))
        except (OSError, TimeoutError, ValidationError) as error:
            log.warning("memory_unusable", file=str(self._file), reason=reason(error))
        return NOTHING_LEARNED

    async def keep(self, state: LearnedState) -> None:
        """Takes the place of what was kept before."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                await asyncio.to_thread(self._write, state)
        except (OSError, TimeoutError) as error:
            log.warning("memory_not_kept", file=str(self._file), reason=reason(error))

    def _read(self) -> LearnedState:
        with self._file.open("rb") as file:
            return LearnedState.model_validate_json(file.read(MAX_BYTES))

    def _write(self, state: LearnedState) -> None:
        self._file.parent.mkdir(parents=True, exist_ok=True)
        beside = self._file.with_suffix(".new")
        beside.write_text(state.model_dump_json(), encoding="utf-8")
        beside.replace(self._file)
