"""`headway topics list|apply|describe`: the topics this configuration needs, and those the broker has."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headway.cli.exits import CliError, Exit
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import print_json, print_rows, say
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from headway.cli.logs import Logs
    from schemas.topics import Topic
    from services.chassis.kafka.connection import Connection
    from services.chassis.kafka.reconciliation import TopicChange

app = typer.Typer(name="topics", help="The topics of the plane.", no_args_is_help=True)

UNASKED = (
    "warning: a broker makes topics of whatever name a client mentions, with settings that may lose records:"
    " set auto.create.topics.enable=false on every broker"
)


@dataclass(frozen=True, slots=True)
class TopicRow:
    """A topic that should be, and what the broker has of it (None: it is missing)."""

    topic: str
    message: str
    partitions: int | None
    records: int | None
    producers: tuple[str, ...]
    consumers: tuple[str, ...]


@app.command("list", epilog=example("headway topics list"))
def list_(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """Every topic in the order of a request; `–` where the broker has none: `headway topics apply` makes it."""
    print_rows(complete(_rows(reach(home))), as_json=as_json, empty="no topics")


@app.command(epilog=example("headway topics apply --dry-run"))
def apply(
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would change.")] = False,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Create and reconcile the topics of the configuration in force; refuse what would lose data."""
    print_rows(complete(_apply(reach(home), dry_run=dry_run)), as_json=as_json, empty="nothing to change")


@app.command(epilog=example("headway topics describe inference-events"))
def describe(
    topic: Annotated[str, typer.Argument(help="Its name.")], home: Home = DEFAULT_HOME, as_json: AsJson = False
) -> None:
    """One topic: what it carries, its partitions with their offsets, its settings."""
    found = complete(_describe(reach(home), topic))
    if as_json:
        print_json(found)
        return
    for name, value in found.items():
        print(f"{name}:")
        for item in value if isinstance(value, dict | tuple) else (value,):
            print(f"  {item}: {value[item]}" if isinstance(value, dict) else f"  {item}")


async def wanted_topics(logs: Logs) -> list[Topic]:
    """Those of the configuration in force; before the first, those that every configuration has."""
    from headway.cli.live import read_applied
    from schemas.topics import all_topics

    bundle = (await read_applied(logs)).bundle
    return list(all_topics(bundle.model_classes, bundle.tenants))


async def _rows(broker: Connection) -> list[TopicRow]:
    from headway.cli.logs import open_logs

    async with open_logs(broker) as logs:
        return [await _row(logs, topic) for topic in await wanted_topics(logs)]


async def _row(logs: Logs, topic: Topic) -> TopicRow:
    spans = await logs.spans(topic.name, await logs.partitions(topic.name))
    return TopicRow(
        topic=topic.name,
        message=topic.message,
        partitions=len(spans) or None,
        records=sum(end - begin for begin, end in spans.values()) if spans else None,
        producers=topic.producers,
        consumers=topic.consumers,
    )


async def _apply(broker: Connection, *, dry_run: bool) -> list[TopicChange]:
    from headway.cli.logs import open_logs
    from services.chassis.kafka.admin import Admin
    from services.chassis.settings import KafkaSettings

    async with open_logs(broker) as logs, Admin(broker) as admin:
        topics = await wanted_topics(logs)
        settings = KafkaSettings.load()
        changes = await admin.reconcile(topics, settings.replication_factor, settings.partitions, dry_run=dry_run)
        if await admin.creates_topics_unasked():
            say(UNASKED)
        return changes


async def _describe(broker: Connection, name: str) -> dict[str, object]:
    from headway.cli.logs import open_logs
    from services.chassis.kafka.admin import Admin

    async with open_logs(broker) as logs, Admin(broker) as admin:
        known = {topic.name: topic for topic in await wanted_topics(logs)}
        state = (await admin.describe([name])).get(name)
        if state is None:
            hint = "`headway topics apply` makes it" if name in known else "`headway topics list` names them"
            raise CliError(f"the broker has no topic {name}: {hint}", Exit.NOT_FOUND)
        spans = await logs.spans(name, range(state.partitions))
        contract = known.get(name)
        return {
            "topic": name,
            "message": contract.message if contract else "not Headway's",
            "key": contract.key if contract else "",
            "producers": contract.producers if contract else (),
            "consumers": contract.consumers if contract else (),
            "partitions": {str(number): f"{begin}–{end}" for number, (begin, end) in sorted(spans.items())},
            "settings": {setting: state.settings[setting] for setting in sorted(state.overrides)},
        }
