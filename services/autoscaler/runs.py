"""Follows what happens to runs, as far as scaling asks: which start, what they have called, which are over.

It has to keep up with every event of the plane beside everything else that its machine does. So most records are
passed over by their headers, and of the others only a few fields are read.
"""

from collections.abc import Callable, Sequence

from pydantic import ValidationError

from schemas import headers
from schemas.base import Contract, LogTime, RunStatus
from schemas.graphs import Graph, Step
from services.autoscaler.domain.branches import calls
from services.autoscaler.domain.open_runs import TELLING, OpenRuns
from services.chassis.kafka.log_reader import LogReader
from services.chassis.kafka.types import Record

FOLLOW_TIMEOUT_S = 1.0
MAX_GRAPHS = 1_000
"""Kept by digest: runs of one version of a pipeline share theirs."""


class _Started(Contract):
    deadline_at: LogTime
    graph_digest: str


class _Planned(Contract):
    graph: Graph


class _Step(Contract):
    step: str
    backend: str | None = None


class _Response(Contract):
    status: RunStatus


class _Finished(Contract):
    response: _Response


class RunFollower:
    """Tells the open runs of a control."""

    def __init__(self, open_runs: OpenRuns, needs: Callable[[Sequence[Step]], None]) -> None:
        """`needs` hears at once which calls a run may make that has started."""
        self._runs = open_runs
        self._needs = needs
        self._graphs: dict[str, Graph] = {}
        self._handlers: dict[str, Callable[[str, bytes], None]] = {
            "run-started": self._started,
            "step-completed": self._called,
            "step-failed": self._called,
            "step-skipped": self._skipped,
            "run-finished": self._finished,
        }

    async def catch_up(self, log: LogReader) -> None:
        """Up to the log's end, as it is now. Raises KafkaError."""
        async for records in log.up_to_end():
            self.add(records)
        self._runs.begin_rates()

    async def run(self, log: LogReader) -> None:
        """Until cancelled. Raises KafkaError."""
        while True:
            self.add(await log.follow(FOLLOW_TIMEOUT_S))

    def add(self, records: Sequence[Record]) -> None:
        """Takes records in log order. One that this version cannot read says nothing."""
        for record in records:
            handler = self._handlers.get(record.header(headers.MESSAGE_TYPE) or "")
            run_id = record.header(headers.RUN_ID)
            if handler is None or run_id is None or record.value is None:
                continue
            try:
                handler(run_id, record.value)
            except ValidationError:
                continue

    def _started(self, run_id: str, value: bytes) -> None:
        started = _Started.model_validate_json(value)
        graph = self._graphs.get(started.graph_digest)
        if graph is None:
            graph = _Planned.model_validate_json(value).graph
            if len(self._graphs) >= MAX_GRAPHS:
                self._graphs.clear()
            self._graphs[started.graph_digest] = graph
        self._runs.start(run_id, graph, started.deadline_at)
        self._needs(calls(graph))

    def _called(self, run_id: str, value: bytes) -> None:
        self._decide(run_id, value, taken=True)

    def _skipped(self, run_id: str, value: bytes) -> None:
        self._decide(run_id, value, taken=False)

    def _decide(self, run_id: str, value: bytes, *, taken: bool) -> None:
        if self._runs.has_undecided(run_id):
            decided = _Step.model_validate_json(value)
            self._runs.decide(run_id, decided.step, taken=taken, backend=decided.backend)

    def _finished(self, run_id: str, value: bytes) -> None:
        """How it ended matters only where it did not come to a step."""
        teaches = self._runs.has_undecided(run_id) and _status(value) in TELLING
        self._runs.end(run_id, teaches=teaches)


def _status(value: bytes) -> RunStatus:
    return _Finished.model_validate_json(value).response.status
