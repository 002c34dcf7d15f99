"""Snapshots of a partition's state: written beside the work, named by commits, loaded by the next owner."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from immutables import Map

from schemas.base import BlobRef
from services.aggregator.domain.evolve import evolve
from services.aggregator.domain.packing import pack
from services.aggregator.domain.snapshot import (
    SnapshotRef,
    Tail,
    UnusableSnapshotError,
    decode,
    encode,
    longest_due,
)
from services.aggregator.domain.state import PackedRun, Partition, Run
from services.chassis.blobs import BlobMissingError, BlobUnavailableError
from services.chassis.logging import log

EVERY_S = 30.0
MAX_SHARE = 0.2
"""How much of the time may go into writing, when states are so large that this matters."""
LOAD_TIMEOUT_S = 3.0
"""For all partitions together: no heartbeat is sent before they are loaded, and the first one comes 1.5 s later, of a
session of 6 s."""
SLICE = 64
PAUSE_S = 0.002
"""After each slice of entries, which takes as long: the fold goes on meanwhile."""


class SnapshotStore(Protocol):
    """Keeps bytes by their content, durably. All raise BlobUnavailableError."""

    async def put(self, content: bytes) -> BlobRef: ...

    async def get(self, ref: BlobRef) -> bytes:
        """Raises BlobMissingError."""

    async def delete(self, ref: BlobRef) -> None: ...


class Version(NamedTuple):
    """A partition's state, and the next offset to fold into it."""

    offset: int
    state: Partition


@dataclass(slots=True)
class Trail:
    """The snapshots of one partition that commits may name, oldest first, and the newest one's state."""

    written_at_s: float
    refs: list[SnapshotRef]
    newest: Version | None = None

    def tail(self, position: int, now_s: float) -> Tail:
        """How much a new owner would have to fold."""
        newest = max((ref.as_of for ref in self.refs), default=0)
        return Tail(max(0, position - newest), now_s - self.written_at_s)

    def metadata(self, offset: int) -> str:
        """Names the newest snapshot that a commit at `offset` may name.

        A later one holds records whose decisions may never have been carried out.
        """
        named = [ref for ref in self.refs if ref.as_of <= offset]
        return max(named, key=lambda ref: ref.as_of).model_dump_json() if named else ""

    def committed(self, metadata: str) -> list[BlobRef]:
        """A commit with this metadata was made: the blobs that nobody will ask for again.

        The one before it is kept: an earlier commit that was given up may still arrive at the broker, and name it.
        """
        named = SnapshotRef.named_by(metadata)
        if named is None:
            return []
        older = sorted((ref for ref in self.refs if ref.as_of < named.as_of), key=lambda ref: ref.as_of)[:-1]
        self.refs = [ref for ref in self.refs if ref not in older]
        return [ref.blob for ref in older]


class Snapshots:
    """Writes and loads them."""

    def __init__(
        self, store: SnapshotStore, window_ms: int, monotonic: Callable[[], float], every_s: float = EVERY_S
    ) -> None:
        self._store = store
        self._window_ms = window_ms
        self._monotonic = monotonic
        self._every_s = every_s
        self._unneeded: list[BlobRef] = []
        self.rest_s = 0.0
        """How long to leave it at the last one, for the sake of everything else."""

    def trail(self, named: SnapshotRef | None) -> Trail:
        """Of a partition just assigned."""
        return Trail(self._monotonic(), [] if named is None else [named])

    def next_due(self, positions: Mapping[int, tuple[Trail, int]]) -> int | None:
        """The partition to write now, of those owned."""
        now_s = self._monotonic()
        tails = {number: trail.tail(position, now_s) for number, (trail, position) in positions.items()}
        return longest_due(tails, self._every_s)

    async def load(self, partition: int, ref: SnapshotRef) -> Version | None:
        """The state it holds; None, and the log says why, when it is gone or of no use: the log itself is there.

        Raises BlobUnavailableError when it may be had later, but not now.
        """
        try:
            async with asyncio.timeout(LOAD_TIMEOUT_S):
                content = await self._store.get(ref.blob)
            return Version(ref.as_of, decode(content, partition, ref.as_of, self._window_ms))
        except TimeoutError:
            raise BlobUnavailableError(f"a snapshot was not read within {LOAD_TIMEOUT_S:.0f} s") from None
        except (BlobMissingError, UnusableSnapshotError) as error:
            log.warning("snapshot_of_no_use", partition=partition, as_of=ref.as_of, exc_info=error)
            return None

    async def write(self, partition: int, version: Version, trail: Trail) -> Partition:
        """Writes one, in slices, and rests; the state with every run packed."""
        work = _Work(self._monotonic)
        packed = await _pack_in_slices(version.state, work)
        content = await _join_in_slices(encode(packed, partition, version.offset), work)
        try:
            ref = await self._store.put(content)
        except BlobUnavailableError as error:
            log.warning("snapshot_not_written", partition=partition, exc_info=error)
        else:
            trail.refs.append(SnapshotRef(as_of=version.offset, blob=ref))
            trail.newest = Version(version.offset, packed)
        trail.written_at_s = self._monotonic()
        self.rest_s = work.took_s / MAX_SHARE
        return packed

    def unneeded(self, blobs: list[BlobRef]) -> None:
        """No commit names these any more."""
        self._unneeded += blobs

    async def delete_unneeded(self) -> None:
        """What cannot be deleted now is left to the store's own expiry."""
        blobs, self._unneeded = self._unneeded, []
        for blob in blobs:
            try:
                await self._store.delete(blob)
            except BlobUnavailableError as error:
                log.warning("snapshot_not_deleted", exc_info=error)


class _Work:
    """Measures what is done between the pauses: other work that goes on in them is not the snapshots' cost."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._since_s = monotonic()
        self.took_s = 0.0

    async def pause(self) -> None:
        self.took_s += self._monotonic() - self._since_s
        await asyncio.sleep(PAUSE_S)
        self._since_s = self._monotonic()


async def _pack_in_slices(state: Partition, work: _Work) -> Partition:
    packed: dict[str, Run | PackedRun] = {}
    for run_id, run in state.open.items():
        packed[run_id] = pack(run)
        if len(packed) % SLICE == 0:
            await work.pause()
    return evolve(state, open=Map(packed))


async def _join_in_slices(pieces: Iterable[bytes], work: _Work) -> bytes:
    joined: list[bytes] = []
    for piece in pieces:
        joined.append(piece)
        if len(joined) % SLICE == 0:
            await work.pause()
    await work.pause()
    return b"".join(joined)
