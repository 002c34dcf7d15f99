"""What a run says, as a person reads it: attempts that begin anew, and text that was lost on the way."""

from typing import NamedTuple

from headway.cli.output import line, safe
from schemas.text import TextPiece

LOST = " … "


class _Place(NamedTuple):
    """How far a step's text has come."""

    attempt: int
    next: int


class Transcript:
    """Of one run. Several steps may speak in turn, and each of them several times."""

    def __init__(self) -> None:
        self._places: dict[str, _Place] = {}
        self._speaker: str | None = None

    def add(self, piece: TextPiece) -> str:
        """What to print for the next piece: nothing for one of an attempt that another has taken the place of."""
        last = self._places.get(piece.step, _Place(0, 0))
        if piece.attempt < last.attempt:
            return ""
        anew = piece.attempt > last.attempt or piece.sequence == 0
        expected = 0 if anew else last.next
        self._places[piece.step] = _Place(piece.attempt, piece.sequence + 1)
        head = self._head(piece, anew=anew, again=anew and last.attempt > 0)
        return head + (LOST if piece.sequence != expected else "") + safe(piece.text, len(piece.text))

    def _head(self, piece: TextPiece, *, anew: bool, again: bool) -> str:
        """Nothing for who goes on speaking, and for who speaks first."""
        before, self._speaker = self._speaker, piece.step
        if before is None and piece.attempt == 1:
            return ""
        if before == piece.step and not anew:
            return ""
        which = f" begins anew, attempt {piece.attempt}" if again or piece.attempt > 1 else ""
        return ("\n" if before else "") + f"— {line(piece.step)}{which} —\n"
