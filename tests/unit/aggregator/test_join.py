"""The aggregator's shell on an in-memory Kafka: what it appends, passes over, and does when parts fail."""

import asyncio
import json
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest
from pydantic_core import from_json

from schemas import ids
from schemas.base import BlobRef, Output
from schemas.errors import DeadLetterReason
from schemas.events import EVENT, Event, RequestCoordinates, RunFinished
from schemas.graphs import OnFailure
from schemas.metrics import RESPONSES_TOTAL
from schemas.topics import EVENTS
from services.aggregator.actions import Actions
from services.aggregator.domain.outcomes import Mapped, finish
from services.aggregator.domain.state import Partition, Run
from services.aggregator.handlers import Join
from services.aggregator.snapshots import Snapshots
from services.chassis.blobs import InMemoryBlobStore, Outputs
from services.chassis.clock import LogClock
from services.chassis.kafka.in_memory import InMemoryKafka
from services.chassis.kafka.messages import encode
from services.chassis.kafka.types import ConsumerSettings, Outgoing, Record, TopicPartition
from services.chassis.metrics import Metrics
from tests.unit.aggregator.log import DEADLINE_MS, DIAMOND, T0, WINDOW_MS, Log, graph, model, rejected, started

TP = TopicPartition(EVENTS, 0)


class FakeRequests:
    def __init__(self) -> None:
        self.retained = True

    async def fetch(self, coordinates: Collection[RequestCoordinates]) -> dict[RequestCoordinates, Record | None]:
        return {each: self._record(each) if self.retained else None for each in coordinates}

    def _record(self, each: RequestCoordinates) -> Record:
        return Record(each.topic, each.partition, each.offset, each.log_time, b"key", b"the request's bytes")


class FakeStopper:
    def __init__(self) -> None:
        self.stopped: list[tuple[str, int]] = []

    def stop_run(self, run_id: str, deadline_at: int) -> None:
        self.stopped.append((run_id, deadline_at))


class Shell:
    """A join that owns one partition, and whatever it gave to the log."""

    def __init__(self) -> None:
        self.now = T0
        self.offset = 0
        self.kafka = InMemoryKafka(lambda: self.now)
        self.kafka.create_topic(EVENTS, 1)
        self.blobs = InMemoryBlobStore()
        self.requests = FakeRequests()
        self.stopper = FakeStopper()
        self.clock = LogClock()
        self.producer = self.kafka.producer()
        self.metrics = Metrics()
        actions = Actions(
            clock=self.clock,
            producer=self.producer,
            outputs=Outputs(self.blobs),
            requests=self.requests,
            stopper=self.stopper,
            metrics=self.metrics,
        )
        self.monotonic_s = 0.0
        snapshots = Snapshots(self.blobs, WINDOW_MS, lambda: self.monotonic_s)
        self.join = Join(actions, window_ms=WINDOW_MS, clock=self.clock, producer=self.producer, snapshots=snapshots)

    async def assign(self) -> None:
        consumer = self.kafka.consumer(ConsumerSettings(group=None, topics=(EVENTS,)), self)
        await consumer.start()
        await self.join.on_assigned(frozenset((TP,)), consumer)
        await consumer.stop()

    async def on_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        """The consumer is only asked for offsets."""

    async def on_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        """The consumer is only asked for offsets."""

    def record(self, value: bytes, after_ms: int = 1) -> Record:
        self.now += after_ms
        self.offset += 1
        return Record(EVENTS, 0, self.offset - 1, self.now, b"k", value)

    async def feed(self, *events: Event | bytes, after_ms: int = 1) -> list[Outgoing]:
        records = [self.record(e if isinstance(e, bytes) else encode(e), after_ms) for e in events]
        return [out for _, outgoing in await self.join.handle(records) for out in outgoing]


@pytest.fixture
async def shell() -> Shell:
    shell = Shell()
    await shell.producer.start()
    await shell.assign()
    return shell


def types(outgoing: list[Outgoing]) -> list[str]:
    return [dict(out.headers).get("message-type", b"dead-letter").decode() for out in outgoing]


def completed(step: str, output: Output, **more: Any) -> Event:
    fields = {"run_id": Log.run_id, "tenant": "acme", "step": step, "attempt": 1, "model_class": "llm", **more}
    return EVENT.validate_python({"type": "step-completed", "output": output.model_dump(), **fields})


ONE = graph(model("a")).model_copy(update={"output": {"x": "${steps.a}"}, "output_reads": ("a",)})


async def test_a_run_goes_from_start_to_its_published_response(shell: Shell) -> None:
    assert types(await shell.feed(started(ONE))) == ["StepReady"]
    (finished,) = await shell.feed(completed("a", Output(value={"y": 1})))
    response, usage = await shell.feed(finished.value or b"")
    assert types([response, usage]) == ["InferenceResponse", "UsageRecord"]
    assert from_json(response.value or b"")["output"] == {"x": {"y": 1}}
    assert (response.topic, response.key) == ("inference-responses", b"r1")
    assert shell.stopper.stopped == [(Log.run_id, T0 + DEADLINE_MS)]


async def test_the_published_response_has_the_bytes_of_the_record_that_won(shell: Shell) -> None:
    await shell.feed(started(ONE))
    (finished,) = await shell.feed(completed("a", Output(value=1)))
    from_the_future = from_json(finished.value or b"")
    from_the_future["response"]["from_a_newer_writer"] = {"kept": True}
    response, _ = await shell.feed(json.dumps(from_the_future).encode())
    assert from_json(response.value or b"")["from_a_newer_writer"] == {"kept": True}


async def test_whoever_wrote_the_outcome_every_copy_has_the_same_bytes(shell: Shell) -> None:
    copies = []
    for came_back in (True, False):
        shell.join.owned[0].state = Partition.empty(WINDOW_MS)
        shell.now = T0
        await shell.feed(started(ONE))
        (finished,) = await shell.feed(completed("a", Output(value={"y": [1e22, 0.1, None]})))
        record = shell.record(finished.value or b"")
        ((_, outgoing),) = await shell.join.handle([replace(record, key=finished.key) if came_back else record])
        copies.append(outgoing)
    assert copies[0] == copies[1]


async def test_records_below_the_commit_are_folded_silently(shell: Shell) -> None:
    shell.join.owned[0].acted = 2
    assert await shell.feed(started(ONE), completed("a", Output(value=1))) == []
    assert shell.join.open_runs() == {0: 1}
    run = shell.join.owned[0].state.open[Log.run_id]
    assert isinstance(run, Run)
    assert types(await shell.feed(finish(run, Mapped(1)))) == ["InferenceResponse", "UsageRecord"]


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b"rubbish", DeadLetterReason.UNDECODABLE),
        (b'{"type": "run-started"}', DeadLetterReason.UNDECODABLE),
        (encode(started(graph(model("a", "nowhere")))), DeadLetterReason.INVALID),
    ],
)
async def test_a_record_that_cannot_be_folded_is_dead_lettered_and_its_neighbours_go_on(
    shell: Shell, value: bytes, why: DeadLetterReason
) -> None:
    letter, ready = await shell.feed(value, started(ONE, request_id="other"))
    assert letter.topic == "inference-events-dlq"
    assert dict(letter.headers)["x-error-class"].decode() == why
    assert types([ready]) == ["StepReady"]


async def test_an_unexpected_fault_of_the_fold_is_poison_and_leaves_the_state(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise KeyError("secret prompt")

    await shell.feed(started(ONE))
    before = shell.join.owned[0].state
    monkeypatch.setattr("services.aggregator.handlers.fold", broken)
    (letter,) = await shell.feed(completed("a", Output(value=1)))
    told = dict(letter.headers)
    assert (told["x-error-class"], told["x-error-msg"]) == (b"poison", b"KeyError")
    assert shell.join.owned[0].state is before


async def test_an_event_of_a_type_from_the_future_is_passed_over(shell: Shell) -> None:
    assert await shell.feed(b'{"type": "run-paused", "run_id": "x", "tenant": "t"}') == []


async def test_records_of_a_partition_that_has_gone_are_left_to_its_owner(shell: Shell) -> None:
    await shell.join.on_revoked(frozenset((TP,)))
    assert await shell.feed(started(ONE)) == []


async def test_a_conflicting_request_is_dead_lettered_with_its_own_bytes(shell: Shell) -> None:
    await shell.feed(started(ONE))
    (letter,) = await shell.feed(started(ONE, digest="other"))
    assert (letter.topic, letter.value) == ("inference-requests-dlq", b"the request's bytes")
    shell.requests.retained = False
    assert await shell.feed(started(ONE, digest="third")) == []


async def test_a_run_that_ends_with_open_attempts_tells_the_workers(shell: Shell) -> None:
    await shell.feed(started(DIAMOND))
    run_id = Log.run_id
    (finished,) = await shell.feed(
        EVENT.validate_python({"type": "run-cancelled", "run_id": run_id, "tenant": "acme", "cancelled_by": "ops"})
    )
    await shell.feed(finished.value or b"")
    assert shell.stopper.stopped == [(run_id, T0 + DEADLINE_MS)]


async def test_workers_are_told_when_the_end_is_decided_not_when_it_is_in_the_log(shell: Shell) -> None:
    await shell.feed(started(ONE))
    await shell.feed(completed("a", Output(value=1)))
    assert shell.stopper.stopped == [(Log.run_id, T0 + DEADLINE_MS)]


async def test_an_owner_that_did_not_decide_the_end_tells_the_workers_when_it_reads_it(shell: Shell) -> None:
    shell.join.owned[0].acted = 2
    await shell.feed(started(ONE), completed("a", Output(value=1)))
    assert shell.stopper.stopped == []
    run = shell.join.owned[0].state.open[Log.run_id]
    assert isinstance(run, Run)
    await shell.feed(finish(run, Mapped(1)))
    assert shell.stopper.stopped == [(Log.run_id, T0 + DEADLINE_MS)]


async def test_an_owner_that_catches_up_dispatches_nothing_that_the_log_has_gone_past(shell: Shell) -> None:
    run_id = Log.run_id
    cancel = EVENT.validate_python(
        {"type": "run-cancelled", "run_id": run_id, "tenant": "acme", "cancelled_by": "ops"}
    )
    assert types(await shell.feed(started(DIAMOND), cancel)) == ["run-finished"]


async def test_a_step_that_is_over_is_not_dispatched_again_and_its_follower_is(shell: Shell) -> None:
    two = graph(model("a"), model("b", "a"))
    (ready,) = await shell.feed(started(two), completed("a", Output(value=1)))
    assert dict(ready.headers)["task-id"] == f"{Log.run_id}/b#1".encode()


async def test_an_output_too_large_for_a_response_fails_the_run(shell: Shell) -> None:
    await shell.feed(started(ONE))
    (finished,) = await shell.feed(completed("a", Output(value="x" * 600_000)))
    assert from_json(finished.value or b"")["response"]["error"]["code"] == "content_too_large"


async def test_an_output_nested_too_deeply_fails_the_run_and_can_be_read(shell: Shell) -> None:
    value: Any = 1
    for _ in range(64):
        value = [value]
    await shell.feed(started(ONE))
    (finished,) = await shell.feed(completed("a", Output(value=value)))
    event = EVENT.validate_json(finished.value or b"")
    assert isinstance(event, RunFinished)
    assert event.response.error is not None
    assert "deeper than 64" in event.response.error.message


async def test_a_step_whose_inputs_do_not_fit_a_record_gets_them_by_claim_check(shell: Shell) -> None:
    many = [model(f"s{number}") for number in range(80)]
    wide = graph(*many, model("last", *(step.id for step in many)))
    await shell.feed(started(wide))
    ready = [out for step in many for out in await shell.feed(completed(step.id, Output(value="x" * 16_000)))]
    (last,) = ready
    outputs = from_json(last.value or b"")["outputs"]
    assert len(last.value or b"") < 50_000
    assert len(outputs) == 80
    assert all(output["ref"] for output in outputs.values())


async def test_a_store_that_is_away_holds_up_one_outcome_and_nothing_else(shell: Shell) -> None:
    ref: BlobRef = await shell.blobs.put(b'"large"')
    shell.blobs.unavailable = True
    await shell.feed(started(ONE), started(ONE, request_id="other"))
    other = completed("a", Output(value=2)).model_copy(update={"run_id": ids.run_id("acme", "other")})
    assert types(await shell.feed(completed("a", Output(ref=ref)), other)) == ["run-finished"]
    shell.blobs.unavailable = False
    async with asyncio.timeout(5):
        while not shell.kafka.records(EVENTS):  # noqa: ASYNC110  the log has no event to wait for
            await asyncio.sleep(0.01)
    (appended,) = shell.kafka.records(EVENTS)
    assert from_json(appended.value or b"")["response"]["output"] == {"x": "large"}


async def test_a_blob_that_is_gone_fails_the_run(shell: Shell) -> None:
    await shell.feed(started(ONE))
    assert await shell.feed(completed("a", Output(ref=BlobRef(sha256="0" * 64, size_bytes=9)))) == []
    async with asyncio.timeout(5):
        while not shell.kafka.records(EVENTS):  # noqa: ASYNC110  the log has no event to wait for
            await asyncio.sleep(0.01)
    (appended,) = shell.kafka.records(EVENTS)
    assert from_json(appended.value or b"")["response"]["error"]["code"] == "invalid_output"


async def test_a_pipeline_text_from_a_rejected_request_is_no_metrics_label(shell: Shell) -> None:
    (finished,) = await shell.feed(rejected())
    await shell.feed(finished.value or b"")
    exposition = shell.metrics.counter(RESPONSES_TOTAL).collect()
    labels = {sample.labels["pipeline"] for metric in exposition for sample in metric.samples}
    assert labels == {"unknown"}


async def test_a_due_timer_gets_a_tick_and_a_past_one_does_not(shell: Shell) -> None:
    await shell.feed(started(graph(model("a", timeout_ms=1_000, on_failure=OnFailure.CONTINUE))))
    shell.join.owned[0].end = 10
    await shell.join._tick_due(shell.now + 5_000)
    assert shell.kafka.records(EVENTS) == []
    shell.join.owned[0].end = 0
    await shell.join._tick_due(shell.now + 5_000)
    async with asyncio.timeout(5):
        while not shell.kafka.records(EVENTS):  # noqa: ASYNC110  the log has no event to wait for
            await asyncio.sleep(0.01)
    assert from_json(shell.kafka.records(EVENTS)[0].value or b"")["type"] == "run-ticked"


async def test_open_runs_are_told_only_of_the_present(shell: Shell) -> None:
    await shell.feed(started())
    assert shell.join.open_runs() == {0: 1}
    shell.join.owned[0].end = shell.offset + 2
    shell.join.resumed.clear()
    await shell.feed(started(request_id="r2"))
    assert shell.join.open_runs() == {}
    assert not shell.join.resumed.is_set()
    await shell.feed(started(request_id="r3"))
    assert shell.join.open_runs() == {0: 3}
    assert shell.join.resumed.is_set()
