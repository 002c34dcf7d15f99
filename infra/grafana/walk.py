"""Asks a Prometheus all that the dashboards ask, and its rules: `python -m infra.grafana.walk http://localhost:9090`.

A line for each query that has no answer or one that is no number, and for each rule that cannot be evaluated or reads
what is not there: a blind alert is as silent as one of a plane that is well. Exit code 1 if there is any. For a plane
that has been at work for a minute or two, on pipelines that have an `slo`.
"""

import math
import re
import sys
from collections.abc import Iterator
from typing import Any

import httpx

from infra.grafana.queries import documents, queries

TIMEOUT_S = 10.0
SERIES = re.compile(r"\b(?:headway[\w:]+|kafka_\w+|up\b)(?:\{[^}]*\})?")
"""Those of a rule's expression, as it chooses among them."""


def walk(client: httpx.Client) -> Iterator[str]:
    """What is wrong, in a line each. Raises httpx.HTTPError."""
    yield from _unanswered(client)
    yield from _ill(client)


def _unanswered(client: httpx.Client) -> Iterator[str]:
    for document in documents().values():
        for query in queries(document):
            if wrong := _wrong(_asked(client, "query", query=query.expr)["result"]):
                yield f"{query.dashboard}, {query.panel}, {query.ref_id}: {wrong}: {query.expr}"


def _ill(client: httpx.Client) -> Iterator[str]:
    for group in _asked(client, "rules")["groups"]:
        for rule in group["rules"]:
            if rule["health"] != "ok":
                yield f"rule {rule['name']}: {rule['health']}: {rule.get('lastError', '')}"
            for name in _absent(client, rule["query"]):
                yield f"rule {rule['name']}: there is no {name}"


def _absent(client: httpx.Client, expr: str) -> list[str]:
    chosen = sorted(set(SERIES.findall(expr)))
    return [series for series in chosen if not _asked(client, "query", query=f"count({series})")["result"]]


def _wrong(found: list[dict[str, Any]]) -> str | None:
    if not found:
        return "no answer"
    unnumbered = [sample for sample in found if not math.isfinite(float(sample["value"][1]))]
    return f"no number: {unnumbered}" if unnumbered else None


def _asked(client: httpx.Client, what: str, **parameters: str) -> Any:
    return client.get(f"/api/v1/{what}", params=parameters).raise_for_status().json()["data"]


def main() -> int:
    """Prints what is wrong."""
    with httpx.Client(base_url=sys.argv[1], timeout=TIMEOUT_S) as client:
        wrong = list(walk(client))
    sys.stdout.write("\n".join(wrong or ["every query has an answer, and every rule what it reads"]) + "\n")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
