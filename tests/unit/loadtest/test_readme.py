"""The README's table of figures."""

from pathlib import Path

import pytest

from loadtest.report.readme import BEGIN, END, table, write_into

FLOOR = {
    "scenario": "floor",
    "machine": {"cpus": 2, "processor": "x86", "python": "3.11"},
    "command": "python -m loadtest floor",
    "repeats": [{}, {}, {}],
    "hop_ms": {"p50": 1.2345},
}
ALONE = {"scenario": "fanout", "concurrency": 1, "command": "one", "hop_ratio": 1.5, "throughput_per_s": 14.0}
MANY = {"scenario": "fanout", "concurrency": 256, "command": "many", "hop_ratio": 5.0, "throughput_per_s": 912.0}


def test_each_figure_stands_with_its_unit_its_repeats_and_its_command() -> None:
    row = "| one hop of bare aiokafka, of the ten that such a run has | 1.23 ms (median of 3) |"
    assert f"{row} `python -m loadtest floor` |" in table([FLOOR])
    assert "Measured on 2 × x86 · python 3.11." in table([FLOOR])


def test_latency_is_that_of_one_caller_and_throughput_that_of_many() -> None:
    rows = [line for line in table([ALONE, MANY]).splitlines() if "`one`" in line or "`many`" in line]
    assert [("1.5 ×" in row, "912 /s" in row) for row in rows] == [(True, False), (False, True)]


def test_only_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"# Before\n{BEGIN}\nold\n{END}\nafter\n")
    write_into(readme, [FLOOR])
    text = readme.read_text()
    assert text.startswith(f"# Before\n{BEGIN}\nMeasured on")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text


def test_a_file_without_the_marks_is_left_as_it_is(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("# Nothing to replace\n")
    with pytest.raises(ValueError, match="has no lines"):
        write_into(readme, [FLOOR])
    assert readme.read_text() == "# Nothing to replace\n"
