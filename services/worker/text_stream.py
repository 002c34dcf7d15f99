"""What engines say, on its way to whoever listens: gathered, bounded, and waited for by nobody."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from schemas.tasks import InferenceTask
from schemas.text import TextPiece
from services.worker.domain.ports import TextChannel, TextLost

EVERY_S = 0.05
"""What is said meanwhile travels together: of a call at most 20 messages a second, however fast its tokens come."""
MAX_WAITING = 1 << 20
"""Characters of all calls. When more wait, the channel has stood still for long: all of it is let go."""


class _Speech:
    """One attempt's text: what was not sent yet, and how many pieces were."""

    __slots__ = ("_sent", "_task", "waiting")

    def __init__(self, task: InferenceTask) -> None:
        self._task = task
        self._sent = 0
        self.waiting: list[str] = []

    def take(self) -> TextPiece:
        """All that waits, as the next piece. Half a surrogate pair is no text: it becomes `?`."""
        text = "".join(self.waiting).encode(errors="replace").decode()
        self.waiting = []
        number, self._sent = self._sent, self._sent + 1
        return TextPiece(
            run_id=self._task.run_id, step=self._task.step, attempt=self._task.attempt, sequence=number, text=text
        )


class TextStream:
    """All calls of a worker share it. A channel that is slow, or away, costs pieces of text, and nothing else."""

    def __init__(self, channel: TextChannel) -> None:
        self._channel = channel
        self._waiting: list[_Speech] = []
        self._characters = 0
        self._said = asyncio.Event()

    def begin(self, task: InferenceTask) -> Callable[[str], None]:
        """Takes the pieces of one attempt's text; it neither blocks nor raises."""
        return partial(self._say, _Speech(task))

    def _say(self, speech: _Speech, text: str) -> None:
        if self._characters >= MAX_WAITING:
            self._take()  # their numbers are used up: whoever listens sees that something is missing
        if not speech.waiting:
            self._waiting.append(speech)
        speech.waiting.append(text)
        self._characters += len(text)
        self._said.set()

    def _take(self) -> list[TextPiece]:
        speeches, self._waiting, self._characters = self._waiting, [], 0
        return [speech.take() for speech in speeches]

    async def run(self) -> None:
        """A component. What is said first goes at once; what follows, with what else comes in `EVERY_S`."""
        while True:
            await self._said.wait()
            self._said.clear()
            with suppress(TextLost):
                await self._channel.publish(self._take())
            await asyncio.sleep(EVERY_S)
