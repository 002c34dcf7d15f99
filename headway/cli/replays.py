"""Replays dead letters, and drops them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from headway.cli.letters import NotReplayableError, Which, note, noted, now_ms, reason_of, replay_of
from headway.cli.logs import Logs
from schemas.topics import Topic
from services.chassis.kafka.admin import Admin
from services.chassis.kafka.aiokafka_adapter import AioKafkaProducer
from services.chassis.kafka.connection import Connection
from services.chassis.kafka.types import Outgoing, Record, TopicPartition

AT_ONCE = 100
"""Letters replayed before they are noted: should the command die in between, so many may be replayed twice, under the
same identity.
"""


@dataclass(frozen=True, slots=True)
class Letters:
    """Letters of one dead-letter topic: the first offset and the end, by partition."""

    topic: str
    spans: Mapping[int, tuple[int, int]]

    @property
    def begins(self) -> dict[int, int]:
        """The first offset, by partition."""
        return {partition: begin for partition, (begin, _) in self.spans.items()}


@dataclass(frozen=True, slots=True)
class Replay:
    """What becomes, or became, of one letter: where it goes, or why not."""

    at: str
    reason: str
    to: str
    refused: str


@dataclass(slots=True)
class Plan:
    """What a replay will do."""

    ready: list[tuple[Record, Outgoing]] = field(default_factory=list)
    refused: list[Replay] = field(default_factory=list)
    replayed_before: int = 0
    left: int = 0
    """Letters beyond the limit."""

    @property
    def rows(self) -> list[Replay]:
        """Letter by letter, those refused at the end."""
        return [_row(letter, _place(out)) for letter, out in self.ready] + self.refused


@dataclass(frozen=True, slots=True)
class Drop:
    """The beginning of one partition, which goes for good: everything before an offset."""

    topic: str
    partition: int
    before: int
    letters: int
    not_replayed: int


async def plan_replay(logs: Logs, letters: Letters, which: Which, topics: Mapping[str, Topic], limit: int) -> Plan:
    """Judges those of `letters` that are meant, the oldest of each partition first."""
    plan = Plan()
    replayed = await replayed_letters(logs, letters)
    async for letter in _read(logs, letters):
        if letter not in which:
            continue
        if letter.offset in replayed[letter.partition]:
            plan.replayed_before += 1
        elif len(plan.ready) + len(plan.refused) == limit:
            plan.left += 1
        else:
            _judge(plan, letter, topics)
    return plan


def _judge(plan: Plan, letter: Record, topics: Mapping[str, Topic]) -> None:
    try:
        plan.ready.append((letter, replay_of(letter, topics, now_ms())))
    except NotReplayableError as error:
        plan.refused.append(replace(_row(letter, ""), refused=str(error)))


async def carry_out(broker: Connection, plan: Plan) -> list[Replay]:
    """Appends the replays, then notes them in the dead-letter topic; where each stands now."""
    producer = AioKafkaProducer(broker)
    await producer.start()
    done: list[Replay] = []
    try:
        for first in range(0, len(plan.ready), AT_ONCE):
            some = plan.ready[first : first + AT_ONCE]
            appended = await producer.send_all([out for _, out in some])
            await producer.send_all(_notes([letter for letter, _ in some]))
            done += [
                _row(letter, f"{out.topic}/{at.partition}/{at.offset}")
                for (letter, out), at in zip(some, appended, strict=True)
            ]
    finally:
        await producer.stop()
    return done


async def plan_drop(logs: Logs, letters: Letters) -> list[Drop]:
    """What goes when `letters` go."""
    replayed = await replayed_letters(logs, letters)
    going: defaultdict[int, set[int]] = defaultdict(set)
    async for letter in _read(logs, letters):
        going[letter.partition].add(letter.offset)
    return [
        Drop(letters.topic, partition, end, len(going[partition]), len(going[partition] - replayed[partition]))
        for partition, (begin, end) in sorted(letters.spans.items())
        if begin < end
    ]


async def drop(broker: Connection, drops: Sequence[Drop]) -> None:
    """Deletes what was planned."""
    async with Admin(broker) as admin:
        await admin.delete_before({TopicPartition(each.topic, each.partition): each.before for each in drops})


async def replayed_letters(logs: Logs, letters: Letters) -> Mapping[int, set[int]]:
    """Offsets of the letters that were replayed, by partition: their notes stand somewhere after them."""
    found: defaultdict[int, set[int]] = defaultdict(set)
    async for record in logs.read(letters.topic, letters.spans, since=letters.begins):
        found[record.partition] |= noted(record) or frozenset()
    return found


async def _read(logs: Logs, letters: Letters) -> AsyncIterator[Record]:
    async for record in logs.read(letters.topic, letters.spans, since=letters.begins):
        if record.offset < letters.spans[record.partition][1] and noted(record) is None:
            yield record


def _notes(letters: Sequence[Record]) -> list[Outgoing]:
    offsets: defaultdict[TopicPartition, list[int]] = defaultdict(list)
    for letter in letters:
        offsets[letter.tp].append(letter.offset)
    return [note(*tp, found) for tp, found in offsets.items()]


def _row(letter: Record, to: str) -> Replay:
    return Replay(f"{letter.topic}/{letter.partition}/{letter.offset}", reason_of(letter), to, "")


def _place(out: Outgoing) -> str:
    return out.topic if out.partition is None else f"{out.topic}/{out.partition}"
