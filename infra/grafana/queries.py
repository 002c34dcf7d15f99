"""What the dashboards ask, as Prometheus gets it when everything is chosen."""

import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from infra.grafana.render import FOLDER

GIVEN = {"$__rate_interval": "1m", "$__range": "1h"}
VARIABLE = re.compile(r"\$\w+")

Document = dict[str, Any]


class Query(NamedTuple):
    """One of a panel's, and where it stands."""

    dashboard: str
    panel: str
    ref_id: str
    expr: str
    legend: str


def documents() -> dict[str, Document]:
    """The committed dashboards by uid."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json"))}


def panels(document: Document) -> list[Document]:
    """Without the rows they stand in."""
    return [panel for panel in document["panels"] if panel["type"] != "row"]


def queries(document: Document) -> Iterator[Query]:
    """Of all panels of a dashboard."""
    for panel in panels(document):
        for target in panel["targets"]:
            legend = target.get("legendFormat", "")
            yield Query(document["uid"], panel["title"], target["refId"], substituted(target["expr"]), legend)


def substituted(expr: str) -> str:
    """Variables stand for everything, intervals for one that any scrape fills."""
    for name, value in GIVEN.items():
        expr = expr.replace(name, value)
    return VARIABLE.sub(".*", expr)
