"""A collector: an HTTP server that takes OTLP as it is spoken on the wire, and keeps the spans."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass(frozen=True, slots=True)
class Received:
    """A span, and the service that told of it."""

    service: str
    span: Span

    @property
    def began_ms(self) -> float:
        """Milliseconds since the epoch, to the microsecond: more digits a float has not."""
        return round(self.span.start_time_unix_nano / 1e6, 3)

    @property
    def ended_ms(self) -> float:
        """Likewise."""
        return round(self.span.end_time_unix_nano / 1e6, 3)

    @property
    def ms(self) -> float:
        """Its length."""
        return (self.span.end_time_unix_nano - self.span.start_time_unix_nano) / 1e6

    @property
    def error(self) -> str | None:
        """The message of a span that failed."""
        status = self.span.status
        return status.message if status.code == status.STATUS_CODE_ERROR else None

    @property
    def attributes(self) -> dict[str, str | int | float]:
        """By name."""
        return {a.key: getattr(a.value, str(a.value.WhichOneof("value"))) for a in self.span.attributes}


class Collector:
    """Made by `collector`."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.received: list[Received] = []
        self.paths: set[str] = set()
        self._news = threading.Condition()

    def take(self, path: str, body: bytes) -> None:
        """A request's spans."""
        with self._news:
            self.paths.add(path)
            for batch in ExportTraceServiceRequest.FromString(body).resource_spans:
                names = [a.value.string_value for a in batch.resource.attributes if a.key == "service.name"]
                self.received += [Received(names[0], span) for scope in batch.scope_spans for span in scope.spans]
            self._news.notify_all()

    def await_spans(self, enough: Callable[[list[Received]], bool], timeout_s: float = 30) -> list[Received]:
        """Blocks until there are enough; fails with their names."""
        with self._news:
            came = self._news.wait_for(lambda: enough(self.received), timeout_s)
            assert came, sorted(received.span.name for received in self.received)
            return list(self.received)


@contextmanager
def collector() -> Iterator[Collector]:
    """On a port of its own."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=partial(server.serve_forever, poll_interval=0.01))
    thread.start()
    server.collector = Collector(server.server_address[1])  # type: ignore[attr-defined]
    try:
        yield server.collector  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        self.server.collector.take(self.path, body)  # type: ignore[attr-defined]
        self.send_response(200)
        self.send_header("content-type", "application/x-protobuf")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """A test's output is the test's."""
