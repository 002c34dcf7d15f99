"""The file in which a leader writes down what it has learned, for the next one to begin with.

Autoscalers on several machines need a folder that all of them see; without one each knows what itself has learned.
A season that is lost is learned again in days, so nothing waits for the file, and no failure of it ends a process.
"""

import asyncio
from functools import partial
from pathlib import Path

from pydantic import ValidationError

from services.autoscaler.domain.learned import NOTHING_LEARNED, LearnedState
from services.chassis.aside import Aside
from services.chassis.logging import log, reason

MAX_BYTES = 32 << 20
"""Of a hundred queues, each with all of its week."""
PATIENCE_S = 2.0
"""A volume that hangs must not hold up whoever is to lead."""


class Memory:
    """One file, written beside and renamed: never seen half. Each state holds all of the ones before, so that on a
    volume that hangs no writes need to queue: the next one that is begun has the newest.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._aside = Aside()
        self._may_hold_more = False
        """The file could not be read: what it holds was not begun with, and must not be lost."""

    async def recall(self) -> LearnedState:
        """What is in the file; nothing, and a line in the log that says why, where it cannot be used."""
        self._may_hold_more = False
        try:
            async with asyncio.timeout(PATIENCE_S):
                return await self._aside.do(self._read)
        except FileNotFoundError:
            log.info("begins_without_memory", file=str(self._file))
        except ValidationError as error:
            log.warning("memory_unusable", file=str(self._file), reason=reason(error))
        except (OSError, TimeoutError) as error:
            self._may_hold_more = True
            log.warning("memory_unreadable", file=str(self._file), reason=reason(error))
        return NOTHING_LEARNED

    async def keep(self, state: LearnedState) -> None:
        """Takes the place of what was kept before."""
        if self._may_hold_more:
            log.warning("memory_not_kept", file=str(self._file), reason="it could not be read, and may hold more")
            return
        try:
            async with asyncio.timeout(PATIENCE_S):
                await self._aside.do(partial(self._write, state))
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
