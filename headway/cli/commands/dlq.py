"""`headway dlq list|show|replay|drop`: what could not be handled, why, and what becomes of it."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import print_json, print_rows, safe, say
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from headway.cli.letters import Which
    from headway.cli.logs import Logs
    from headway.cli.replays import Drop, Letters, Plan, Replay
    from services.chassis.kafka.connection import Connection
    from services.chassis.kafka.types import Record

app = typer.Typer(name="dlq", help="Dead letters: the original bytes, and why.", no_args_is_help=True)

BODY_CHARACTERS = 4_000
HEADER_CHARACTERS = 400

Limit = Annotated[int, typer.Option(min=1, max=100_000, help="The newest so many.")]
Target = Annotated[
    str, typer.Argument(metavar="TOPIC[/PARTITION/OFFSET]", help="A dead-letter topic, or one letter of it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


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
    replayed: bool


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


@app.command(epilog=example("headway dlq replay inference-requests-dlq --reason request_too_old --dry-run"))
def replay(
    what: Target,
    *,
    reason: Annotated[str | None, typer.Option(help="Only letters of this reason.")] = None,
    partition: Annotated[int | None, typer.Option(min=0, help="Only of this original partition.")] = None,
    since: Annotated[str | None, typer.Option(help="Written since then: 30m (ago), or an ISO 8601 time.")] = None,
    until: Annotated[str | None, typer.Option(help="Written before then.")] = None,
    request_id: Annotated[str | None, typer.Option("--id", help="Only of this request.")] = None,
    limit: Annotated[int, typer.Option(min=1, max=1_000, help="At most so many letters, the oldest first.")] = 100,
    dry_run: DryRun = False,
    yes: Yes = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Ask again what letters asked: key, bytes, headers and the request's identity stay.

    Only requests can be replayed; each letter is once. Exits 1 when a letter that was meant is refused.
    """
    from headway.cli.letters import Which

    which = Which(
        reason=_known_reason(reason),
        partition=partition,
        since_ms=_moment(since, "--since"),
        until_ms=_moment(until, "--until"),
        request_id=request_id,
    )
    broker = reach(home)
    plan = complete(_plan_replay(broker, what, which, limit))
    _tell(plan)
    if plan.ready and not dry_run:
        _consent(f"append {len(plan.ready)} requests again?", plan.rows, yes=yes)
        print_rows([*complete(_carry_out(broker, plan)), *plan.refused], as_json=as_json, empty="")
    else:
        print_rows(plan.rows, as_json=as_json, empty="nothing to replay")
    if plan.refused:
        raise typer.Exit(Exit.PROBLEMS)


@app.command(epilog=example("headway dlq drop inference-requests-dlq/0/17"))
def drop(
    what: Target, *, dry_run: DryRun = False, yes: Yes = False, home: Home = DEFAULT_HOME, as_json: AsJson = False
) -> None:
    """Delete letters for good: all that a topic has now, or one and every letter before it in its partition.

    Kafka deletes nothing else than the beginning of a partition.
    """
    broker = reach(home)
    drops = complete(_plan_drop(broker, what))
    if drops and not dry_run:
        _consent(f"delete {sum(each.letters for each in drops)} letters for good?", drops, yes=yes)
        complete(_drop(broker, drops))
    print_rows(drops, as_json=as_json, empty="nothing to drop")


def _known_reason(reason: str | None) -> str | None:
    from schemas.errors import DeadLetterReason

    if reason is not None and reason not in list(DeadLetterReason):
        raise CliError(f"--reason: {safe(reason, 40)} is none of {', '.join(DeadLetterReason)}")
    return reason


def _moment(text: str | None, option: str) -> int | None:
    from headway.cli.letters import moment_ms, now_ms

    try:
        return None if text is None else moment_ms(text, now_ms())
    except ValueError as error:
        raise CliError(f"{option}: {error}") from None


def _tell(plan: Plan) -> None:
    from headway.cli.letters import tally

    if plan.ready:
        say(f"to be replayed: {tally(row.reason for row in plan.rows if not row.refused)}")
    if plan.refused:
        say(f"refused: {tally(row.reason for row in plan.refused)}")
    if plan.replayed_before:
        say(f"passed over, since they were replayed before: {plan.replayed_before}")
    if plan.left:
        say(f"left for another time (--limit): {plan.left}")


def _consent(question: str, rows: Sequence[Replay] | Sequence[Drop], *, yes: bool) -> None:
    """Shows what is about to be done, and asks."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise CliError("there is nobody to ask: say --yes, or --dry-run to see what would be done")
    print_rows(rows, as_json=False, empty="")
    typer.confirm(question, abort=True, err=True)


async def _plan_replay(broker: Connection, what: str, which: Which, limit: int) -> Plan:
    from headway.cli.commands.topics import wanted_topics
    from headway.cli.logs import open_logs
    from headway.cli.replays import plan_replay

    async with open_logs(broker) as logs:
        letters = await _named(logs, what)
        topics = {
            each.name: replace(each, partitions=len(await logs.partitions(each.name)))
            for each in await wanted_topics(logs)
        }
        return await plan_replay(logs, letters, which, topics, limit)


async def _carry_out(broker: Connection, plan: Plan) -> list[Replay]:
    from headway.cli.replays import carry_out

    return await carry_out(broker, plan)


async def _plan_drop(broker: Connection, what: str) -> list[Drop]:
    from headway.cli.logs import open_logs
    from headway.cli.replays import Letters, plan_drop

    async with open_logs(broker) as logs:
        named = await _named(logs, what)
        begins = await logs.spans(named.topic, named.spans)
        spans = {number: (begins[number][0], end) for number, (_, end) in named.spans.items()}
        return await plan_drop(logs, Letters(named.topic, spans))


async def _drop(broker: Connection, drops: Sequence[Drop]) -> None:
    from headway.cli import replays

    await replays.drop(broker, drops)


async def _named(logs: Logs, what: str) -> Letters:
    """One letter, or all that a topic has now."""
    from headway.cli.replays import Letters

    if "/" not in what:
        return Letters(what, await logs.spans(what, await _partitions(logs, what)))
    topic, partition, offset = _coordinates(what)
    await _at(logs, topic, partition, offset)
    return Letters(topic, {partition: (offset, offset + 1)})


async def _counts(broker: Connection) -> list[DeadLetters]:
    from headway.cli.commands.topics import wanted_topics
    from headway.cli.letters import noted, reason_of
    from headway.cli.logs import open_logs
    from schemas.topics import DEAD_LETTER_SUFFIX

    counts: Counter[tuple[str, str]] = Counter()
    async with open_logs(broker) as logs:
        topics = [topic.name for topic in await wanted_topics(logs) if topic.name.endswith(DEAD_LETTER_SUFFIX)]
        for topic in topics:
            async for record in logs.read(topic, await logs.partitions(topic)):
                if noted(record) is None:
                    counts[topic, reason_of(record)] += 1
    return [DeadLetters(topic, reason, count) for (topic, reason), count in counts.items()]


async def _letters(broker: Connection, topic: str, limit: int) -> list[DeadLetter]:
    """The newest `limit`, oldest first."""
    from headway.cli.letters import noted
    from headway.cli.logs import open_logs

    letters: list[Record] = []
    replayed: set[tuple[int, int]] = set()
    async with open_logs(broker) as logs:
        async for record in _newest(logs, topic, limit):
            if (offsets := noted(record)) is None:
                letters.append(record)
            else:
                replayed |= {(record.partition, offset) for offset in offsets}
    newest = sorted(letters, key=lambda letter: letter.timestamp)[-limit:]
    return [_row(letter, replayed=(letter.partition, letter.offset) in replayed) for letter in newest]


async def _newest(logs: Logs, topic: str, limit: int) -> AsyncIterator[Record]:
    """At most `limit` of each partition: all that can be among the newest `limit`."""
    spans = await logs.spans(topic, await _partitions(logs, topic))
    since = {partition: end - limit for partition, (_, end) in spans.items()}
    async for record in logs.read(topic, spans, since=since):
        yield record


async def _letter(broker: Connection, topic: str, partition: int, offset: int) -> Record:
    from headway.cli.logs import open_logs

    async with open_logs(broker) as logs:
        return await _at(logs, topic, partition, offset)


async def _at(logs: Logs, topic: str, partition: int, offset: int) -> Record:
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


def _row(record: Record, *, replayed: bool) -> DeadLetter:
    from headway.cli.letters import clock, reason_of
    from schemas import headers

    original = (headers.X_ORIGINAL_TOPIC, headers.X_ORIGINAL_PARTITION, headers.X_ORIGINAL_OFFSET)
    return DeadLetter(
        at=f"{record.topic}/{record.partition}/{record.offset}",
        time=clock(record.timestamp),
        reason=reason_of(record),
        message=record.header(headers.X_ERROR_MESSAGE) or "",
        original="/".join(record.header(name) or "?" for name in original),
        bytes=len(record.value or b""),
        replayed=replayed,
    )


def _shown(record: Record) -> dict[str, Any]:
    """Everything in it is foreign: what is not UTF-8 is shown as \\xNN, and nothing acts on the terminal."""
    from headway.cli.letters import clock

    return {
        "at": f"{record.topic}/{record.partition}/{record.offset}",
        "time": clock(record.timestamp),
        "headers": {safe(name, 100): _text(value, HEADER_CHARACTERS) for name, value in record.headers},
        "key": _text(record.key or b"", HEADER_CHARACTERS),
        "body": _text(record.value or b"", BODY_CHARACTERS),
    }


def _text(data: bytes, limit: int) -> str:
    """Cut before it is decoded: a letter may have 2 MiB."""
    shown = safe(data[: 4 * limit].decode(errors="backslashreplace"), limit)
    return shown if len(data) <= 4 * limit else f"{shown[:limit]}… ({len(data)} bytes)"
