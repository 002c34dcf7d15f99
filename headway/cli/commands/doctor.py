"""`headway doctor`: what is missing or wrong, and the command that mends it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headway.cli.exits import CliError, Exit, expected
from headway.cli.options import DEFAULT_HOME, AsJson, Home, example
from headway.cli.output import print_rows
from headway.cli.reach import complete, reach

if TYPE_CHECKING:
    from pathlib import Path

    from headway.cli.checkup import Finding
    from headway.cli.live import Applied
    from headway.cli.logs import Logs
    from services.chassis.fleet import FleetView
    from services.chassis.kafka.connection import Connection

app = typer.Typer()

SERVICES = ("orchestrator", "aggregator", "autoscaler", "host")


@app.command(epilog=example("headway doctor"))
def doctor(home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """Find what is missing or wrong, and the command that fixes it.

    Looks at this installation, and at the plane if one is up. Exits 1 when something is wrong.
    """
    from headway.cli.checkup import installation

    findings = [*installation(home), *_plane(home)]
    print_rows(findings, as_json=as_json, empty="")
    if not all(finding.ok for finding in findings):
        raise typer.Exit(Exit.PROBLEMS)


def _plane(home: Path) -> list[Finding]:
    """A plane that is not up is no fault; one that is up must work."""
    from headway.cli.checkup import Finding, ports

    try:
        broker = reach(home)
    except CliError as error:
        return [Finding("plane", True, str(error)), ports()]
    try:
        return complete(_look(broker))
    except Exception as error:
        if expected(error) is None:
            raise
        return [Finding("broker", False, str(error), "headway up")]


async def _look(broker: Connection) -> list[Finding]:
    from headway.cli.checkup import Finding
    from headway.cli.fleet import read_fleet
    from headway.cli.live import read_applied
    from headway.cli.logs import open_logs

    async with open_logs(broker) as logs:
        applied = await read_applied(logs)
        fleet = await read_fleet(logs)
        topics = await _topics(broker, logs)
    broker_found = Finding("broker", True, broker.bootstrap_servers)
    return [broker_found, topics, _configuration(applied), *_services(fleet), *_workers(applied, fleet)]


async def _topics(broker: Connection, logs: Logs) -> Finding:
    from headway.cli.checkup import Finding
    from headway.cli.commands.topics import wanted_topics
    from services.chassis.kafka.admin import Admin
    from services.chassis.kafka.reconciliation import TopicError
    from services.chassis.settings import KafkaSettings

    async with Admin(broker) as admin:
        wanted, settings = await wanted_topics(logs), KafkaSettings.load()
        try:
            changes = await admin.reconcile(wanted, settings.replication_factor, settings.partitions, dry_run=True)
        except TopicError as error:
            return Finding("topics", False, str(error), "headway topics list")
    if changes:
        return Finding("topics", False, f"{len(changes)} not as they should be", "headway topics apply")
    return Finding("topics", True, f"all {len(wanted)}")


def _configuration(applied: Applied) -> Finding:
    from headway.cli.checkup import Finding

    if applied.in_force is None:
        return Finding("configuration", False, "nothing is applied", "headway config apply")
    return Finding("configuration", True, f"revision {applied.in_force.revision}")


def _services(fleet: FleetView) -> list[Finding]:
    from headway.cli.checkup import Finding
    from schemas.fleet import ServiceStatus

    alive = {status.service for status in fleet.of(ServiceStatus)}
    return [
        Finding(name, True, "alive") if name in alive else Finding(name, False, "silent", f"headway serve {name}")
        for name in SERVICES
    ]


def _workers(applied: Applied, fleet: FleetView) -> list[Finding]:
    from headway.cli.staffing import current, staffed
    from schemas.fleet import HostStatus, ScalingDecision, WorkerStatus
    from schemas.models import queues

    configured, workers = list(queues(applied.bundle.model_classes)), fleet.of(WorkerStatus)
    staff = staffed(configured, fleet.of(ScalingDecision), workers)
    return [staff, current(configured, workers, fleet.of(HostStatus))]
