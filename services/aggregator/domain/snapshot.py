"""The state of a partition as of one offset, as bytes: what a new owner begins with instead of the whole log.

JSON lines: a header, the plans, two lines for each open run (so that it can be left packed), then what is remembered,
many entries a line.
A newer version reads what an older one wrote. Never the other way round: a fold must not go on from a state that it
might not have reached.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from immutables import Map
from pydantic import Field
from pydantic_core import from_json, to_json

from schemas.base import BlobRef, Contract, LogTime
from schemas.graphs import Graph
from services.aggregator.domain.fold import FOLD_VERSION
from services.aggregator.domain.memory import Memory
from services.aggregator.domain.packing import pack
from services.aggregator.domain.plans import Plan
from services.aggregator.domain.state import PackedRun, Partition, Run

FORMAT = 1
ENTRIES_A_LINE = 256
EVERY_RECORDS = 15_000
"""How many records a new owner may have to fold, over all partitions of one process: about two seconds of work."""


class SnapshotRef(Contract):
    """What a commit's metadata says: where the state as of an offset at or below the commit is kept."""

    as_of: int = Field(ge=0, description="The next offset to fold.")
    blob: BlobRef

    @classmethod
    def named_by(cls, metadata: str) -> "SnapshotRef | None":
        """None for a commit that names none, or in a way that this version cannot read."""
        try:
            return cls.model_validate_json(metadata)
        except ValueError:
            return None


class Tail(NamedTuple):
    """What came in a partition since its newest snapshot, and how long that has been."""

    records: int
    waited_s: float


def longest_due(tails: Mapping[int, Tail], every_s: float) -> int | None:
    """The partition to write next, if one is due: all together have become long, or one has waited long enough."""
    crowded = sum(tail.records for tail in tails.values()) > EVERY_RECORDS
    due = [number for number, tail in tails.items() if tail.records and (crowded or tail.waited_s >= every_s)]
    return max(due, key=lambda number: tails[number].records, default=None)


class UnusableSnapshotError(Exception):
    """It cannot be gone on from: of a newer version, of something else, or damaged."""


class _Generations(Contract):
    """The sizes of a memory's two generations, and when they changed."""

    young: int
    old: int
    turned_at: LogTime


class _Header(Contract):
    format: int
    fold: int
    partition: int
    as_of: int
    prune_at: int
    plans: int
    open: int
    finished: _Generations
    cancelled: _Generations


def encode(state: Partition, partition: int, as_of: int) -> Iterator[bytes]:
    """The snapshot in pieces of one entry each, to be joined: whoever asks may pause between them.

    Runs that are packed already cost next to nothing.
    """
    yield _line(
        _Header(
            format=FORMAT,
            fold=FOLD_VERSION,
            partition=partition,
            as_of=as_of,
            prune_at=state.prune_at,
            plans=len(state.plans),
            open=len(state.open),
            finished=_generations(state.finished),
            cancelled=_generations(state.cancelled),
        )
    )
    for digest, plan in state.plans.items():
        yield _line((digest, plan.graph))
    for run_id, run in state.open.items():
        packed = pack(run)
        yield _line((run_id, packed.next_due, packed.graph_digest)) + packed.body + b"\n"
    for memory in (state.finished, state.cancelled):
        for generation in (memory.young, memory.old):
            entries = iter(generation.items())
            while some := list(islice(entries, ENTRIES_A_LINE)):
                yield _line(some)


def decode(content: bytes, partition: int, as_of: int, window_ms: int) -> Partition:
    """The state that was encoded for that partition and offset. Raises UnusableSnapshotError."""
    lines = iter(content.split(b"\n"))
    try:
        header = _Header.model_validate_json(next(lines))
        if header.format != FORMAT or header.fold > FOLD_VERSION:
            raise UnusableSnapshotError(f"written by a newer version: format {header.format}, fold {header.fold}")
        if (header.partition, header.as_of) != (partition, as_of):
            raise UnusableSnapshotError(f"it is of partition {header.partition} as of {header.as_of}")
        return _decode(header, lines, window_ms)
    except (ValueError, TypeError, StopIteration) as error:
        raise UnusableSnapshotError(f"damaged: {error!r}") from error


def _decode(header: _Header, lines: Iterator[bytes], window_ms: int) -> Partition:
    plans = {}
    for _ in range(header.plans):
        digest, graph = from_json(next(lines))
        plans[digest] = Plan.of(Graph.model_validate(graph))
    runs: dict[str, Run | PackedRun] = {}
    for _ in range(header.open):
        run_id, due, digest = from_json(next(lines))
        runs[run_id] = PackedRun(due, digest, next(lines))
    return Partition(
        finished=_memory(header.finished, lines, window_ms),
        cancelled=_memory(header.cancelled, lines, window_ms),
        open=Map(runs),
        plans=Map(plans),
        prune_at=header.prune_at,
    )


def _memory(sizes: _Generations, lines: Iterator[bytes], window_ms: int) -> Memory[str]:
    young, old = _generation(sizes.young, lines), _generation(sizes.old, lines)
    return Memory(window_ms, young, old, sizes.turned_at)


def _generation(size: int, lines: Iterator[bytes]) -> "Map[str, tuple[int, str]]":
    entries: dict[str, tuple[int, str]] = {}
    while len(entries) < size:
        entries.update((key, (expiry, value)) for key, (expiry, value) in from_json(next(lines)))
    return Map(entries)


def _generations(memory: Memory[str]) -> _Generations:
    return _Generations(young=len(memory.young), old=len(memory.old), turned_at=memory.turned_at)


def _line(entry: object) -> bytes:
    return to_json(entry) + b"\n"
