"""Logs: one JSON object a line on stdout (for people when it is a terminal), and one canonical line per unit of work.

Every call has a machine name and fields: `log.warning("broker_lost", wait_s=2)`. Prompts, inputs and outputs never
are fields; an exception is told by its class and a short reason from which a validator's input is left out.
"""

import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from threading import Lock
from typing import Any, TextIO

import structlog
from pydantic import ValidationError
from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger

MAX_REASON = 500
MAX_FRAMES = 20
TELLS_INFO = ("debug", "info")
"""Levels at which canonical lines are written."""

_JSON = json.JSONEncoder(default=str, separators=(",", ":"))
"""ASCII: no field can break the line, and a lone surrogate cannot break the log."""

log: FilteringBoundLogger = structlog.get_logger()


def configure(service: str, instance: str, level: str = "info", stream: TextIO | None = None) -> None:
    """Sends the process's logs to `stream` (default stdout), libraries' warnings included."""
    global _canonical  # noqa: PLW0603  a process has one log
    out = stream or sys.stdout
    process = {"service": service, "instance": instance}

    def identify(_logger: WrappedLogger, _method: str, fields: EventDict) -> EventDict:
        return {"event": fields.pop("event"), **process, **fields}

    sink, for_people = _Sink(out), out.isatty()
    _shape(level, lambda: sink, identify, structlog.dev.ConsoleRenderer() if for_people else _line)
    _canonical = _by_structlog if for_people or level not in TELLS_INFO else partial(_straight, sink, process)
    logging.basicConfig(handlers=[_LibraryHandler()], level=logging.WARNING, force=True)


def _shape(level: str, logger: Callable[[], WrappedLogger], first: Processor, last: Processor) -> None:
    structlog.configure(
        processors=[
            first,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            _explain,
            last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda *_: logger(),
        cache_logger_on_first_use=False,
    )


class _Sink:
    """Writes lines, each at once, and loses what it cannot write: a full disk must not end the service."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = Lock()

    def msg(self, line: str) -> None:
        """Whole lines, whatever thread they come from."""
        with self._lock, suppress(OSError):
            self._stream.write(line + "\n")
            self._stream.flush()

    debug = info = warning = error = critical = exception = msg


def canonical(event: str, **fields: Any) -> None:
    """The one line of a finished unit of work: what it was, how it ended, how long it took."""
    _canonical(event, fields)


def _by_structlog(event: str, fields: EventDict) -> None:
    log.info(event, **fields)


def _straight(sink: _Sink, process: dict[str, str], event: str, fields: EventDict) -> None:
    """The very line that structlog would make. There are several a run: all its processors take twice the time."""
    now = datetime.now(UTC).isoformat().replace("+00:00", "Z")
    sink.msg(_JSON.encode({"event": event, **process, **fields, "level": "info", "timestamp": now}))


_canonical: Callable[[str, EventDict], None] = _by_structlog


def reason(error: BaseException) -> str:
    """An exception's message on one line, short, and without the value a validator refused."""
    if isinstance(error, ValidationError):
        details = error.errors(include_url=False, include_context=False, include_input=False)
        text = "; ".join(f"{'.'.join(map(str, detail['loc']))}: {detail['msg']}" for detail in details[:5])
    else:
        text = str(error)
    return " ".join(text.split())[:MAX_REASON]


def _explain(_logger: WrappedLogger, method: str, fields: EventDict) -> EventDict:
    """`exc_info` as fields; the stack only where somebody has to look for a bug."""
    error = fields.pop("exc_info", None)
    if error is True:
        error = sys.exc_info()[1]
    if isinstance(error, tuple):
        error = error[1]
    if isinstance(error, BaseException):
        fields.update(error=type(error).__qualname__, reason=reason(error))
        if method in ("error", "critical", "exception"):
            fields["stack"] = list(_frames(error))
    return fields


def _frames(error: BaseException) -> Iterator[str]:
    """Places of the stack, the outermost first, then those of the cause; no source lines, no values."""
    for frame in traceback.extract_tb(error.__traceback__)[-MAX_FRAMES:]:
        yield f"{frame.filename}:{frame.lineno} {frame.name}"
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    if cause is not None:
        yield f"caused by {type(cause).__qualname__}: {reason(cause)}"
        yield from _frames(cause)


def _line(_logger: WrappedLogger, _method: str, fields: EventDict) -> str:
    return _JSON.encode(fields)


class _LibraryHandler(logging.Handler):
    """What libraries log through the standard library, as our lines."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            log.log(
                record.levelno,
                "library_log",
                logger=record.name,
                message=record.getMessage()[:MAX_REASON],
                exc_info=record.exc_info,
            )
        except Exception:
            self.handleError(record)


# What is not a service (a command, a test) tells of warnings, on stderr. Without this structlog would print
# tracebacks with the values of every variable.
_shape("warning", lambda: structlog.WriteLogger(sys.stderr), structlog.processors.add_log_level, _line)
