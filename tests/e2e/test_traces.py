"""A trace through real processes: each tells of its own part, and together they tell of the whole."""

import asyncio
from collections import Counter

import pytest

from tests.e2e.planes import RunningPlane
from tests.otlp import Collector, Received

pytestmark = [pytest.mark.kafka, pytest.mark.plane]

TRACE_ID, CALLER = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
REQUEST = b'{"pipeline": "ask-like", "input": {"question": "why?"}}'
PARTS = {
    "headway-orchestrator": {"admission": 1},
    "headway-aggregator": {
        "run ask-like": 1, "response": 1,
        **{f"step {step}": 1 for step in ("guard", "safe", "embed", "retrieve", "phrase", "ground")},
    },
    "headway-worker": {"queue quick": 4, "service quick": 4, "queue llm": 1, "service llm": 1},
}  # fmt: skip
"""Who tells of what, and how often. A worker may tell of a cold start, too."""


def told(found: list[Received]) -> dict[str, Counter[str]]:
    """The spans of each service by name."""
    parts = {service: Counter[str]() for service in PARTS}
    for one in found:
        if not one.span.name.startswith("cold start"):
            parts[one.service][one.span.name] += 1
    return parts


async def test_every_process_tells_its_part_of_one_trace(plane: RunningPlane, traces: Collector) -> None:
    await plane.publish(REQUEST, key=b"untraced")
    await plane.publish(REQUEST, key=b"traced", headers=[("traceparent", f"00-{TRACE_ID}-{CALLER}-01".encode())])
    found = await asyncio.to_thread(traces.await_spans, lambda spans: told(spans) == PARTS)
    assert {one.span.trace_id.hex() for one in found} == {TRACE_ID}, "only who asked for a trace has one"
    known = {one.span.span_id.hex() for one in found}
    assert len(known) == len(found)
    assert {one.span.parent_span_id.hex() for one in found} - known == {CALLER}, "no other parent is missing"
    (run,) = [one for one in found if one.span.name == "run ask-like"]
    assert run.span.parent_span_id.hex() == CALLER
    assert run.attributes["headway.status"] == "succeeded"
