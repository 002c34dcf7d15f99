"""Judges a chaos run once more, from the home it left: `python -m loadtest.chaos.judge HOME`.

Kafka is started on the home's data; nothing else is, so nothing changes.
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from headway.plane.kafka import EmbeddedKafka
from headway.plane.ports import free_ports
from loadtest.chaos.checker import Verdict, check
from loadtest.chaos.history import Entry
from loadtest.chaos.reader import read_all
from loadtest.chaos.run import HISTORY, STRIKES
from loadtest.nemesis.fault import Evidence, Strike


async def judge(home: Path) -> Verdict:
    """The verdict over what is in the home."""
    entries = [Entry(**fields) for fields in _lines(home / HISTORY)]
    strikes = [Strike(**{**fields, "evidence": _evidence(fields["evidence"])}) for fields in _lines(home / STRIKES)]
    kafka = EmbeddedKafka(home / "kafka", free_ports(1)[0])
    await kafka.start(lambda _: None)
    try:
        return check(entries, await read_all(kafka.bootstrap, home / "logs"), strikes)
    finally:
        await kafka.stop(grace_s=10)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]


def _evidence(fields: dict[str, Any]) -> Evidence:
    return Evidence(str(fields["seen"]), tuple(fields["expected"]))


if __name__ == "__main__":
    verdict = asyncio.run(judge(Path(sys.argv[1])))
    for found in verdict.anomalies.values():
        for anomaly in found:
            print(f"{anomaly.kind}: {anomaly.what}: {anomaly.why}")
    print(f"{verdict.accepted} accepted, {verdict.answered} answered, {verdict.duplicates} identical copies")
    sys.exit(not verdict.clean)
