"""What the clients did and were told: one entry an act, in memory and as JSON lines in a file."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal, TextIO

from loadtest.nemesis.fault import now_ms
from schemas.base import Json

Act = Literal["invoke", "repeat", "contradict", "cancel"]
Kind = Literal["invoke", "ok", "info", "fail"]


@dataclass(frozen=True, slots=True)
class Entry:
    """`invoke`: about to be sent. `ok`: acknowledged. `info`: unknown. `fail`: certainly not taken."""

    kind: Kind
    act: Act
    client: int
    request_id: str
    at_ms: int = field(default_factory=now_ms)
    body: dict[str, Json] | None = None
    """Of an invocation: what was sent."""
    where: str | None = None
    """Of an acknowledgement: `topic/partition/offset`."""

    def then(self, kind: Kind, where: str | None = None) -> "Entry":
        """What became of this invocation, now."""
        return Entry(kind, self.act, self.client, self.request_id, where=where)


class History:
    """Appends entries, and keeps them."""

    def __init__(self, file: Path) -> None:
        self.entries: list[Entry] = []
        file.parent.mkdir(parents=True, exist_ok=True)
        self._file: TextIO = file.open("a", encoding="utf-8")

    def add(self, entry: Entry) -> None:
        """Notes it."""
        self.entries.append(entry)
        self._file.write(json.dumps(asdict(entry)) + "\n")

    def close(self) -> None:
        """Writes out what is buffered."""
        self._file.close()
