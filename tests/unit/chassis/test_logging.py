"""Every line is one JSON object that says what happened, and none says what a client asked."""

import io
import json
import logging as stdlib
import re
from collections.abc import Iterator
from typing import Any

import pytest
import structlog
from pydantic import BaseModel, ValidationError

from schemas.base import Priority
from services.chassis import logging
from services.chassis.logging import canonical, log


@pytest.fixture(autouse=True)
def restored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(logging, "_canonical", logging._canonical)
    root = stdlib.getLogger()
    handlers, level, shape = root.handlers[:], root.level, structlog.get_config()
    yield
    structlog.configure(**shape)
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.fixture
def out() -> io.StringIO:
    stream = io.StringIO()
    logging.configure("worker", "host-worker-1", "info", stream)
    return stream


def lines(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def test_a_canonical_line_names_the_event_and_the_process(out: io.StringIO) -> None:
    canonical("task_ended", run_id="r", service_ms=1.5)
    (line,) = lines(out)
    assert line.pop("timestamp").endswith("Z")
    assert line == {
        "event": "task_ended",
        "service": "worker",
        "instance": "host-worker-1",
        "level": "info",
        "run_id": "r",
        "service_ms": 1.5,
    }


@pytest.mark.parametrize("level", ["debug", "info", "warning"])
def test_a_canonical_line_is_the_line_of_an_info(level: str) -> None:
    out = io.StringIO()
    logging.configure("worker", "host-worker-1", level, out)
    canonical("task_ended", run_id="r\u2028", lane=Priority.BATCH, service_ms=1.5, why=None)
    log.info("task_ended", run_id="r\u2028", lane=Priority.BATCH, service_ms=1.5, why=None)
    stamp = r'"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{6})?Z"'
    written = [re.sub(stamp, "<now>", line) for line in out.getvalue().splitlines()]
    assert written[::2] == written[1::2]
    assert len(written) == (0 if level == "warning" else 2)
    assert all("<now>" in line for line in written)


def test_a_full_disk_costs_lines_and_nothing_else() -> None:
    with open("/dev/full", "w") as full:
        logging.configure("worker", "host-worker-1", "info", full)
        for _ in range(10):
            canonical("task_ended", padding="x" * 4_096)


def test_what_is_below_the_level_is_not_written(out: io.StringIO) -> None:
    log.debug("poll", records=0)
    assert out.getvalue() == ""


@pytest.mark.parametrize("text", ["a\nb", "a\r\nb", "\ud800", "\x00", "\u2028"])
def test_no_value_can_break_the_line(out: io.StringIO, text: str) -> None:
    canonical("request_refused", request_id=text)
    assert out.getvalue().count("\n") == 1
    assert out.getvalue().isascii()
    assert lines(out)[0]["request_id"] == text


def test_a_value_that_is_no_json_is_written_as_text(out: io.StringIO) -> None:
    canonical("x", value={1}, error_type=ValueError)
    assert lines(out)[0]["value"] == "{1}"


def fail() -> None:
    try:
        dict[str, int]()["inner"]
    except KeyError as error:
        raise ValueError("two\nlines") from error


def test_an_error_is_told_with_its_class_reason_stack_and_cause(out: io.StringIO) -> None:
    try:
        fail()
    except ValueError as error:
        log.error("component_failed", exc_info=error)
    (line,) = lines(out)
    assert (line["error"], line["reason"]) == ("ValueError", "two lines")
    assert line["stack"][1].endswith(" fail")
    assert line["stack"][2].startswith("caused by KeyError")


def test_the_stack_stands_only_where_somebody_has_to_look_for_a_bug(out: io.StringIO) -> None:
    log.warning("broker_lost", exc_info=ConnectionError("refused"))
    (line,) = lines(out)
    assert (line["error"], line["reason"]) == ("ConnectionError", "refused")
    assert "stack" not in line


def test_a_refused_value_is_not_logged(out: io.StringIO) -> None:
    class Question(BaseModel):
        text: int

    with pytest.raises(ValidationError) as caught:
        Question.model_validate({"text": "my secret"})
    log.error("request_refused", exc_info=caught.value)
    assert "my secret" not in out.getvalue()
    assert lines(out)[0]["reason"].startswith("text: Input should be a valid integer")


def test_a_long_reason_is_cut() -> None:
    assert len(logging.reason(ValueError("x" * 9_999))) == logging.MAX_REASON


def test_a_librarys_warning_is_one_of_our_lines(out: io.StringIO) -> None:
    stdlib.getLogger("aiokafka").warning("broker %s lost", 3)
    stdlib.getLogger("aiokafka").info("joined")
    (line,) = lines(out)
    assert (line["event"], line["logger"], line["message"]) == ("library_log", "aiokafka", "broker 3 lost")


def test_a_librarys_exception_is_told_like_ours(out: io.StringIO) -> None:
    try:
        fail()
    except ValueError:
        stdlib.getLogger("asyncio").exception("task failed")
    (line,) = lines(out)
    assert (line["level"], line["error"]) == ("error", "ValueError")
    assert line["stack"]


def test_what_is_not_a_service_tells_of_warnings_on_stderr_without_the_values_at_hand(
    capsys: pytest.CaptureFixture[str],
) -> None:
    prompt = "my secret"
    try:
        raise OSError(len(prompt))  # noqa: TRY301
    except OSError as error:
        log.warning("store_away", exc_info=error)
        log.info("task_ended")
    out, err = capsys.readouterr()
    assert (out, json.loads(err)["event"]) == ("", "store_away")
    assert "my secret" not in err


def test_people_at_a_terminal_get_no_json() -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    logging.configure("worker", "w-1", stream=terminal)
    canonical("task_ended", run_id="r")
    assert "task_ended" in terminal.getvalue()
    assert not terminal.getvalue().startswith("{")
