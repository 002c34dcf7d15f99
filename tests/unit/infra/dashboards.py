"""The committed dashboards as data, with what Grafana puts into their expressions."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import promql_parser as ql

from infra.grafana.render import FOLDER

GIVEN = {"$__rate_interval": "1m", "$__range": "1h"}
VARIABLE = re.compile(r"\$\w+")

Document = dict[str, Any]


class Query(NamedTuple):
    """What one panel asks, and where it stands."""

    dashboard: str
    panel: str
    ref_id: str
    expr: str
    legend: str

    def parsed(self) -> ql.Expr:
        """With everything chosen, as Prometheus gets it. Raises ValueError."""
        return ql.parse(substituted(self.expr))


def substituted(expr: str) -> str:
    """An expression as Prometheus gets it when all is chosen."""
    for name, value in GIVEN.items():
        expr = expr.replace(name, value)
    return VARIABLE.sub(".*", expr)


def documents() -> dict[str, Document]:
    """By uid."""
    return {path.stem: read(path) for path in sorted(FOLDER.glob("*.json"))}


def read(path: Path) -> Document:
    document: Document = json.loads(path.read_text(encoding="utf-8"))
    return document


def panels(document: Document) -> list[Document]:
    """Without the rows they stand in."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def queries(uid: str) -> Iterator[Query]:
    """Of all panels of one dashboard."""
    for panel in panels(documents()[uid]):
        for target in panel["targets"]:
            yield Query(uid, panel["title"], target["refId"], target["expr"], target.get("legendFormat", ""))
