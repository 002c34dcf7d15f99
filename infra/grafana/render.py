"""The dashboards as Grafana reads them."""

import json
from collections.abc import Iterator
from pathlib import Path

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from infra.grafana import cold_starts, cost, fleet, lag, latency

FOLDER = Path(__file__).parent / "dashboards"
BOARDS = (lag, latency, cost, cold_starts, fleet)


def rendered() -> Iterator[tuple[Path, str]]:
    """Each dashboard's file and what belongs in it."""
    for module in BOARDS:
        made = module.dashboard().build()
        text = json.dumps(made, cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False)
        yield FOLDER / f"{made.uid}.json", text + "\n"


def write() -> None:
    """Writes all of them."""
    for path, text in rendered():
        path.write_text(text)
