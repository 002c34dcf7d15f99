"""The page of load tests: whole, one file, and deaf to what stands in the figures."""

import json
from collections import Counter
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from loadtest.__main__ import app
from loadtest.report import comparisons, plots
from loadtest.report.figures import machine_line, name, number, tiles
from loadtest.report.page import render
from loadtest.report.plot import Plot
from tests.unit.loadtest.golden import golden

TITLES = [
    "Latency distribution",
    "Throughput over time",
    "Latency over time",
    "Lag by lane",
    "Where a run's time goes",
    "CPU and memory by part",
]
HOSTILE = '"><img src=x onerror=alert(1)><script>alert(2)</script>$\\frac{_'


class Page(HTMLParser):
    """What stands in a page: its elements, their attributes, and its words."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: Counter[str] = Counter()
        self.attributes: list[tuple[str, str | None]] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements[tag] += 1
        self.attributes.extend(attrs)

    def handle_data(self, data: str) -> None:
        if data.strip():
            self.words.append(data.strip())

    def of(self, attribute: str) -> list[str]:
        return [value or "" for name, value in self.attributes if name == attribute]


@pytest.fixture(scope="module")
def text() -> str:
    return render([golden(), {**golden(), "scenario": "floor", "concurrency": 1}])


@pytest.fixture(scope="module")
def page(text: str) -> Page:
    return Page(text)


def test_a_page_has_every_plot_of_every_scenario(page: Page) -> None:
    assert [word for word in page.words if word in TITLES] == TITLES * 2
    assert page.elements["svg"] == len(TITLES) * 2


def test_a_page_has_the_machine_once_and_the_headline_figures_with_their_spread(page: Page) -> None:
    assert page.words.count("2 × Some CPU · 7.7 GiB · Linux 6.1 · kafka 4.3.1") == 1
    throughput = page.words.index("throughput")
    assert page.words[throughput : throughput + 4] == ["throughput", "985", "/s", "950 – 1,020"]
    assert page.words.count("every promise kept") == 2


def test_a_page_needs_nothing_but_itself(page: Page) -> None:
    assert not page.elements.keys() & {"script", "link", "img", "iframe", "object"}
    assert not page.of("src")
    assert all(target.startswith("#") for target in page.of("href") + page.of("xlink:href"))


def test_what_is_referred_to_is_there_once(page: Page) -> None:
    ids = Counter(page.of("id"))
    assert set(ids.values()) == {1}
    assert {target.removeprefix("#") for target in page.of("href") + page.of("xlink:href")} <= ids.keys()


def test_drawings_take_their_colours_from_the_page(text: str) -> None:
    assert text.count("stroke: var(--s1)") > 0
    assert text.count("fill: var(--s1)") > 0
    assert "#fa00" not in text
    assert "#fb00" not in text


@pytest.mark.parametrize(
    ("draw", "missing"),
    [
        (plots.lag, lambda run: run["series"].pop("lag")),
        (plots.lag, lambda run: run["series"]["lag"].update(tasks={})),
        (plots.throughput, lambda run: run["series"].pop("seconds")),
        (plots.latency_over_time, lambda run: run["series"]["seconds"].update(p50_ms=[None] * 6, p99_ms=[None] * 6)),
        (plots.time_of_a_run, lambda run: run.pop("timing_ms")),
        (plots.cpu, lambda run: run.pop("cpu_ms_per_run")),
    ],
)
def test_a_plot_without_figures_is_left_out(
    draw: Callable[[dict[str, Any]], Plot | None], missing: Callable[[dict[str, Any]], object]
) -> None:
    run = golden()
    missing(run)
    assert draw(run) is None


def test_figures_without_series_make_a_page_without_plots() -> None:
    bare = {"scenario": "rolling", "requests": 2_000, "lost": 1, "broken": ["nothing_lost"]}
    page = Page(render([bare]))
    assert page.elements["svg"] == 0
    assert "broken: nothing_lost" in page.words
    assert page.words[page.words.index("requests") + 1] == "2,000"


def test_peers_are_compared_with_what_was_measured_of_them() -> None:
    slow = {"throughput_per_s": 40.2, "added_ms": {"p50": 21.0}}
    run = {"scenario": "peers", "peers": {"celery": slow, "ray": {"unavailable": "no package"}}}
    assert comparisons.peers(run) is None
    plot = comparisons.peers(run | {"headway": {"throughput_per_s": 804.0, "added_ms": {"p50": 12.0}}})
    assert plot
    for shown in ("celery", "headway", "40.2", "804", "21", "12"):
        assert f">{shown}</text>" in plot.svg
    assert ">ray</text>" not in plot.svg


def test_isolation_shows_each_tail_alone_and_beside_others() -> None:
    run = {"idle_p99_ms": 12.0, "loaded_p99_ms": 14.4, "shared": {"idle_p99_ms": 11.0, "loaded_p99_ms": None}}
    plot = comparisons.isolation(run)
    assert plot
    assert ">separate workers</text>" in plot.svg
    assert ">14.4</text>" in plot.svg
    assert ">a shared worker</text>" not in plot.svg
    assert comparisons.isolation({"scenario": "drain"}) is None


def test_more_workers_are_drawn_against_what_their_slots_could_do() -> None:
    rates: dict[str, Any] = {count: {"throughput_per_s": 19.0 * int(count)} for count in ("1", "2", "4")}
    plot = comparisons.workers({"by_workers": rates, "ideal_per_s": 20.0})
    assert plot
    assert plot.note
    assert comparisons.workers({"by_workers": {"1": rates["1"]}}) is None


def test_growth_of_cost_leaves_out_what_a_logarithm_cannot_show() -> None:
    cost = {"latency_ms": {"p50": 70.0}, "cpu_ms_per_run": {"all": 3.0}}
    plot = comparisons.growth({"open_runs": {"0": cost, "1000": cost, "100000": cost}})
    assert plot
    assert ">100,000</text>" in plot.svg
    assert comparisons.growth({"open_runs": 100_000}) is None  # that of another scenario


def test_the_floor_stands_beside_what_the_plane_adds() -> None:
    with_floor, without = golden(), golden()
    del without["floor"], without["ideal_ms"]
    both, alone = plots.distribution(with_floor), plots.distribution(without)
    assert both
    assert alone
    assert [word for _, word in both.legend] == [
        "a run",
        "what the plane adds to the ideal",
        "the floor: bare Kafka, as many hops",
    ]
    assert [word for _, word in alone.legend] == ["a request"]


def test_whatever_stands_in_the_figures_is_shown_and_never_run() -> None:
    run = golden() | {"scenario": HOSTILE, "command": HOSTILE, "machine": {"processor": HOSTILE}, "broken": [HOSTILE]}
    run[HOSTILE] = HOSTILE
    run["cpu_ms_per_run"] = {HOSTILE: 1.0, "kafka": 0.5}
    run["series"]["lag"]["tasks"] = {HOSTILE: [1, 2, 3, 4]}
    page = Page(render([run]))
    assert not page.elements.keys() & {"script", "img"}
    assert not page.of("onerror")
    assert HOSTILE in page.words
    assert page.elements["svg"] == len(TITLES)


def test_numbers_have_three_digits_that_count() -> None:
    assert [number(value) for value in (0.01234, 12.345, 985.2, 1_234.5, 20_000, 3)] == [
        *("0.0123", "12.3", "985", "1,234", "20,000", "3")
    ]


def test_failures_are_told_loudly() -> None:
    assert {tile.label for tile in tiles(golden()) if tile.is_bad} == {"failed"}
    assert not [tile for tile in tiles(golden() | {"failed": 0}) if tile.is_bad]


def test_a_scenario_is_named_with_its_load() -> None:
    assert name(golden()) == "fanout, 64 callers"
    assert name(golden() | {"rate_per_s": 50.0, "concurrency": None}) == "fanout, 50 a second"
    assert name({"scenario": "drain", "concurrency": 1}) == "drain"
    assert machine_line({}) == ""


def test_figures_of_several_machines_name_each_of_them() -> None:
    page = Page(render([{"scenario": "drain", "machine": {"cpus": cpus}} for cpus in (2, 64)]))
    assert page.words.count("2 × CPU") == page.words.count("64 × CPU") == 1


def test_the_command_joins_files(tmp_path: Path) -> None:
    files = [tmp_path / "drain.json", tmp_path / "flush.json"]
    for file in files:
        file.write_text(json.dumps({"scenario": file.stem}))
    out = tmp_path / "page.html"
    assert CliRunner().invoke(app, ["report", *map(str, files), "--out", str(out)]).exit_code == 0
    page = Page(out.read_text(encoding="utf-8"))
    assert page.of("href") == ["#run-1", "#run-2"]
    assert page.words.count("flush") == 2
