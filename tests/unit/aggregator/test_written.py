"""What this process wrote is found again by its bytes, and its response in them."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import from_json, to_json

from schemas.events import RunFinished
from schemas.topics import EVENTS
from services.aggregator.domain.outcomes import Mapped, finish
from services.aggregator.written import MAX_BYTES, MAX_OUTCOMES, Written, response_in
from services.chassis.kafka.messages import encode, run_record
from services.chassis.kafka.types import Outgoing, Record
from tests.unit.aggregator.log import Log, graph, model

TEXTS = st.text(st.characters(codec="utf-8")) | st.sampled_from([',"response":{', ',"usage":{"schema_version":1}'])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


def outcome(value: Any = 1, **more: Any) -> RunFinished:
    """Of a run whose steps have the names that are looked for."""
    log = Log()
    log.start(graph(model("schema_version"), model("usage"), model("response")), **more)
    for step in ("schema_version", "usage", "response"):
        log.done(step)
    return finish(log.run, Mapped(value))


def read_back(written: Outgoing, value: bytes | None = None) -> Record:
    return Record(EVENTS, 0, 0, 0, written.key, value or written.value)


@given(VALUES, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=2))
def test_the_response_has_the_bytes_that_whoever_parses_the_record_makes_of_it(
    value: Any, text: str, labels: dict[str, str]
) -> None:
    texts = {"traceparent": text, "correlation_id": text, "response_topic": text, "tenant": text}
    record = encode(outcome(value, labels=labels, **texts))
    assert response_in(record) == to_json(from_json(record)["response"])


def test_an_outcome_is_found_until_its_response_is_taken() -> None:
    written, finished = Written(), outcome()
    record = run_record(EVENTS, finished)
    written.keep(record, finished)
    assert written.find(read_back(record)) is finished
    assert from_json(written.take_response(read_back(record)) or b"") == finished.response.model_dump(mode="json")
    assert written.find(read_back(record)) is None
    assert written.take_response(read_back(record)) is None


def test_what_another_wrote_is_none_of_these() -> None:
    written, finished = Written(), outcome()
    record = run_record(EVENTS, finished)
    written.keep(record, finished)
    others = read_back(record, encode(outcome(value=2)))
    assert written.find(others) is None
    assert written.take_response(others) is None


def test_only_so_many_are_kept_and_only_small_ones() -> None:
    written, finished = Written(), outcome()
    records = [run_record(EVENTS, finished, key=str(number)) for number in range(MAX_OUTCOMES + 1)]
    for record in records:
        written.keep(record, finished)
    assert [written.find(read_back(record)) for record in records[:2]] == [None, finished]
    large = outcome(value="x" * MAX_BYTES)
    written.keep(run_record(EVENTS, large), large)
    assert written.find(read_back(run_record(EVENTS, large))) is None
