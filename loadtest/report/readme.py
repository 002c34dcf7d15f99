"""The performance table of the README, written from the JSON of the runs that it tells of."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from loadtest.report import figures

BEGIN, END = "<!-- performance: made by `make bench` -->", "<!-- end of performance -->"


class Claim(NamedTuple):
    """A figure that the README tells. `{}` in the text is the value of the key, as people read numbers."""

    scenario: str
    what: str
    key: str
    text: str
    alone: bool | None = None
    """Only of one caller, or only of many."""


CLAIMS = (
    Claim("floor", "one hop of bare aiokafka, of the ten that such a run has", "hop_ms.p50", "{} ms"),
    Claim("fanout", "added to the 55 ms ideal of a two-stage run, one caller", "added_ms.p50", "{} ms", alone=True),
    Claim("fanout", "that, over the floor of ten hops in the same run", "hop_ratio", "{} ×", alone=True),
    Claim("fanout", "the same, over a floor asked as often as the plane", "as_often.hop_ratio", "{} ×", alone=True),
    Claim("fanout", "two-stage runs a second, broker and load included", "throughput_per_s", "{} /s", alone=False),
    Claim("peers", "runs a second, over the best of Celery, Ray Serve and Restate", "throughput_ratio", "{} ×"),
    Claim("isolation", "p99 of fast calls beside saturated slow ones, over idle: separate workers", "ratio", "{} ×"),
    Claim("isolation", "the same on one shared worker", "shared.ratio", "{} ×"),
    Claim("isolation", "interactive p99 with a backlog of 50,000 batch tasks, over none", "backlog.ratio", "{} ×"),
    Claim("isolation", "the lowest lane of a saturated class gets", "lanes_percent.batch", "{} %"),
    Claim("scaleout", "efficiency of four workers", "efficiency", "{}"),
    Claim(
        "sequential",
        "coordination in a two-stage run of 5–8 s",
        "coordination_percent.by_their_account",
        "{} %",
    ),
    Claim(
        "sequential",
        "the same with the client's way in and out, and the way to the workers",
        "coordination_percent.by_the_clock",
        "{} %",
    ),
    Claim("enterprise", "p95 of an assistant's mix in 64 sessions", "p95_ms", "{} ms"),
    Claim("soak", "p99 of the last five minutes of half an hour, over the first", "p99_drift", "{} ×"),
)


def table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Markdown: each claim that the runs have a figure for, with the command that makes it."""
    machines = dict.fromkeys(figures.machine_line(run) for run in runs)
    found = [row for claim in CLAIMS for run in runs if (row := _row(claim, run))]
    head = ["| what | figure | command |", "|---|---|---|"]
    return "\n".join([f"Measured on {'; '.join(machines)}.", "", *head, *found])


def write_into(path: Path, runs: Sequence[Mapping[str, Any]]) -> None:
    """Replaces what stands between the marks. ValueError when they are not there."""
    text = path.read_text(encoding="utf-8")
    before, begun, rest = text.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not (begun and ended):
        raise ValueError(f"{path}: has no lines `{BEGIN}` and `{END}`")
    path.write_text(f"{before}{BEGIN}\n{table(runs)}\n{END}{after}", encoding="utf-8")


def _row(claim: Claim, run: Mapping[str, Any]) -> str | None:
    if run["scenario"] != claim.scenario or claim.alone not in (None, run.get("concurrency") == 1):
        return None
    value = dict(figures.rows(run)).get(claim.key)
    if value is None:
        return None
    return f"| {claim.what} | {claim.text.format(figures.text(value))}{_repeats(run)} | `{run.get('command', '')}` |"


def _repeats(run: Mapping[str, Any]) -> str:
    many = len(run.get("repeats", ()))
    return f" (median of {many})" if many > 1 else ""
