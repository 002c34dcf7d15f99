"""Several scenarios' JSON as one page that opens without a network."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from loadtest.report import comparisons, figures, plots

_templates = Environment(loader=PackageLoader("loadtest.report", "."), autoescape=True, undefined=StrictUndefined)


def render(runs: Sequence[Mapping[str, Any]]) -> str:
    """The page, in the order of the runs. Whatever stands in them is shown as it is, and never run."""
    machines = {figures.machine_line(run) for run in runs}
    return _templates.get_template("page.html.j2").render(
        runs=[_section(run) for run in runs],
        machine=machines.pop() if len(machines) == 1 else "",
    )


def _section(run: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "name": figures.name(run),
        "command": run.get("command", ""),
        "machine": figures.machine_line(run),
        "repeats": len(run.get("repeats", ())),
        "promises": run.get("broken"),
        "tiles": list(figures.tiles(run)),
        "plots": [*comparisons.comparisons(run), *plots.plots(run)],
        "table": list(figures.table(run)),
    }
