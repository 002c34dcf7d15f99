"""`headway dlq list|show`: what could not be handled, and why."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import print_json, print_rows, safe
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from headway.cli.logs import Logs
    from services.chassis.kafka.connection import Connection
    from services.chassis.kafka.types import Record

app = typer.Typer(name="dlq", help="Dead letters: the original bytes, and why.", no_args_is_help=True)

BODY_CHARACTERS = 4_000
HEADER_CHARACTERS = 400

Limit = Annotated[int, typer.Option(min=1, max=100_000, help="The newest so many.")]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """How many letters of one reason stand in one dead-letter topic."""

    topic: str
    reason: str
    count: int


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """One letter. `at` names it: `dlq show` takes it."""

    at: str
    time: str
    reason: str
    message: str
    original: str
    bytes: int


@app.command("list", epilog=example("headway dlq list inference-requests-dlq"))
def list_(
    topic: Annotated[str | None, typer.Argument(help="A dead-letter topic; without one, counts of all.")] = None,
    limit: Limit = 50,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by topic and reason, or list those of one topic."""
    empty = "no dead letters"
    if topic is None:
        print_rows(complete(_counts(reach(home))), as_json=as_json, empty=empty)
    else:
        print_rows(complete(_letters(reach(home), topic, limit)), as_json=as_json, empty=empty)


@app.command(epilog=example("headway dlq show inference-requests-dlq/0/17"))
def show(
    at: Annotated[str, typer.Argument(metavar="TOPIC/PARTITION/OFFSET", help="As `dlq list TOPIC` names it.")],
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """One dead letter: its headers, key and body, with control characters escaped and cut at 4,000 characters."""
    topic, partition, offset = _coordinates(at)
    letter = _shown(complete(_letter(reach(home), topic, partition, offset)))
    if as_json:
        print_json(letter)
        return
    for name, value in letter["headers"].items():
        print(f"{name}: {value}")
    print(f"key: {letter['key']}\n\n{letter['body']}")


async def _counts(broker: Connection) -> list[DeadLetters]:
    from headway.cli.commands.topics import wanted_topics
    from headway.cli.logs import open_logs
    from schemas.topics import DEAD_LETTER_SUFFIX

    counts: Counter[tuple[str, str]] = Counter()
    async with open_logs(broker) as logs:
        topics = [topic.name for topic in await wanted_topics(logs) if topic.name.endswith(DEAD_LETTER_SUFFIX)]
        for topic in topics:
            async for record in logs.read(topic, await logs.partitions(topic)):
                counts[topic, _reason(record)] += 1
    return [DeadLetters(topic, reason, count) for (topic, reason), count in counts.items()]


async def _letters(broker: Connection, topic: str, limit: int) -> list[DeadLetter]:
    """The newest `limit`, oldest first."""
    from headway.cli.logs import open_logs

    async with open_logs(broker) as logs:
        letters = [_row(record) async for record in _newest(logs, topic, limit)]
    return sorted(letters, key=lambda letter: letter.time)[-limit:]


async def _newest(logs: Logs, topic: str, limit: int) -> AsyncIterator[Record]:
    """At most `limit` of each partition: all that can be among the newest `limit`."""
    spans = await logs.spans(topic, await _partitions(logs, topic))
    since = {partition: end - limit for partition, (_, end) in spans.items()}
    async for record in logs.read(topic, spans, since=since):
        yield record


async def _letter(broker: Connection, topic: str, partition: int, offset: int) -> Record:
    from headway.cli.logs import open_logs

    async with open_logs(broker) as logs:
        if partition in await _partitions(logs, topic):
            async for record in logs.read(topic, [partition], since={partition: offset}):
                if record.offset == offset:
                    return record
                break
    raise CliError(f"no record at {topic}/{partition}/{offset}: see `headway dlq list {topic}`", Exit.NOT_FOUND)


async def _partitions(logs: Logs, topic: str) -> list[int]:
    from schemas.topics import DEAD_LETTER_SUFFIX

    partitions = await logs.partitions(topic)
    if not partitions or not topic.endswith(DEAD_LETTER_SUFFIX):
        raise CliError(f"{topic} is no dead-letter topic here: see `headway dlq list`", Exit.NOT_FOUND)
    return partitions


def _coordinates(at: str) -> tuple[str, int, int]:
    topic, *numbers = at.rsplit("/", 2)
    if len(numbers) != 2 or not all(number.isdecimal() for number in numbers):
        raise CliError(f"not TOPIC/PARTITION/OFFSET: {safe(at, 100)}")
    return topic, int(numbers[0]), int(numbers[1])


def _reason(record: Record) -> str:
    from schemas.headers import X_ERROR_CLASS

    return record.header(X_ERROR_CLASS) or "unknown"


def _row(record: Record) -> DeadLetter:
    from schemas import headers

    original = (headers.X_ORIGINAL_TOPIC, headers.X_ORIGINAL_PARTITION, headers.X_ORIGINAL_OFFSET)
    return DeadLetter(
        at=f"{record.topic}/{record.partition}/{record.offset}",
        time=_time(record.timestamp),
        reason=_reason(record),
        message=record.header(headers.X_ERROR_MESSAGE) or "",
        original="/".join(record.header(name) or "?" for name in original),
        bytes=len(record.value or b""),
    )


def _time(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1_000, UTC).isoformat(timespec="milliseconds")


def _shown(record: Record) -> dict[str, Any]:
    """Everything in it is foreign: what is not UTF-8 is shown as \\xNN, and nothing acts on the terminal."""
    return {
        "at": f"{record.topic}/{record.partition}/{record.offset}",
        "time": _time(record.timestamp),
        "headers": {safe(name, 100): _text(value, HEADER_CHARACTERS) for name, value in record.headers},
        "key": _text(record.key or b"", HEADER_CHARACTERS),
        "body": _text(record.value or b"", BODY_CHARACTERS),
    }


def _text(data: bytes, limit: int) -> str:
    """Cut before it is decoded: a letter may have 2 MiB."""
    shown = safe(data[: 4 * limit].decode(errors="backslashreplace"), limit)
    return shown if len(data) <= 4 * limit else f"{shown[:limit]}… ({len(data)} bytes)"
