"""Everything at zero, then one request: its classes start together, so that it waits for the slowest alone.

First on engines that only take as long to load, then on real ones. Each class is first started alone, from the moment
a host is told to until its first task is done: together these make the time that the starts take one after the other.

Promised: an answer after 1.1 times the slowest class's own cold start, and the time that its engines work. Where the
cores are too few for that, what all starts compute on all cores counts instead of the slowest start.
"""

import base64
import struct
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

from headway.client import HeadwayClient
from loadtest import cold, resources
from loadtest.context import Context, broken
from loadtest.fleet import Fleet, is_at_zero, listening
from loadtest.nemesis.fault import now_ms
from loadtest.steps import completed_since
from schemas.base import Json, RunStatus
from schemas.responses import InferenceResponse
from services.host.adapters.machine import cores

CONFIG = cold.furnished
ENVIRONMENT = {"HEADWAY_HOST_CPU": "16", "HEADWAY_HOST_MEMORY": "16GiB"}
"""Room for all classes together: what is measured is how they start, not where."""
TIMES = 1.1
TIMEOUT_S = 600.0
ZERO_S = 60.0
"""To be there again after the cooldown."""
QUESTION = "When are default parameter values evaluated?"
VECTOR = base64.b64encode(struct.pack("<384f", *[1.0] * 384)).decode()


class Pipeline(NamedTuple):
    """One that is answered from zero, and what each of its classes is asked alone."""

    name: str
    asked: Mapping[str, Json]


SIMULATED = Pipeline("cascade", {f"sim-{name}": {} for name in ("classifier", "embedding", "retrieval", "llm")})
REAL = Pipeline(
    "ask",
    {
        "classifier": {"text": QUESTION},
        "embedding": {"texts": [QUESTION]},
        "retriever": {"vector": VECTOR, "top_k": 3},
        "llm": {"messages": [{"role": "user", "content": QUESTION}], "max_tokens": 8},
        "tools": {"call": "grounded", "question": QUESTION, "text": "", "documents": []},
    },
)


async def run(context: Context) -> dict[str, Any]:
    """Keys: `to_answer_s`, `allowed_s`, `sequential_s`, `service_s`, `by_class{lone_s, cpu_s}`; so of `simulated`."""
    fleet = Fleet()
    async with HeadwayClient(context.endpoints.kafka) as headway, listening(context.endpoints.kafka, fleet):
        plane = _Plane(context, headway, fleet)
        await plane.at_zero()
        simulated = await _measured(plane, SIMULATED)
        await plane.ask(REAL.name)  # its documents are embedded, its files read once: neither is a cold start
        await plane.at_zero()
        real = await _measured(plane, REAL)
    return {
        **real,
        "simulated": simulated,
        **broken(
            together_on_simulated_engines=simulated["to_answer_s"] <= simulated["allowed_s"],
            together_on_real_engines=real["to_answer_s"] <= real["allowed_s"],
        ),
    }


class _Plane:
    """A plane that goes back to zero after every request."""

    def __init__(self, context: Context, headway: HeadwayClient, fleet: Fleet) -> None:
        self._context = context
        self._headway = headway
        self._fleet = fleet

    async def at_zero(self) -> None:
        """Until no host has a worker. TimeoutError when that takes a minute."""
        since_ms = now_ms()
        if not await self._fleet.until(lambda said: is_at_zero(said, since_ms), ZERO_S):
            raise TimeoutError(f"there were still workers {ZERO_S:g} s after the last request")

    async def ask(self, pipeline: str) -> tuple[InferenceResponse, float]:
        """The answer, and after how many seconds. RuntimeError when the run did not succeed."""
        return await self._run(pipeline, {"question": QUESTION})

    async def start_alone(self, model_class: str, value: Json) -> cold.Start:
        """A class's own cold start, with everything at zero before and afterwards."""
        from_ms, endpoints = now_ms(), self._context.endpoints
        await self._run(cold.alone(model_class), {"input": value})
        cpu_s = resources.usage(endpoints)[f"worker {model_class}"].cpu_s
        steps = await completed_since(endpoints.kafka, from_ms)
        start = cold.Start(cold.lone_s(self._fleet.said, steps, model_class, from_ms), cpu_s)
        self._context.say(f"coldstart: {model_class} alone in {start.lone_s:.2f} s, {cpu_s:.2f} s of a core")
        await self.at_zero()
        return start

    async def _run(self, pipeline: str, value: Mapping[str, Json]) -> tuple[InferenceResponse, float]:
        began = time.monotonic()
        response = await self._headway.run(pipeline, value, deadline_s=TIMEOUT_S, timeout_s=TIMEOUT_S)
        if response.status is not RunStatus.SUCCEEDED:
            raise RuntimeError(f"{pipeline} is {response.status}: {response.error}, without {response.missing}")
        return response, time.monotonic() - began


async def _measured(plane: _Plane, pipeline: Pipeline) -> dict[str, Any]:
    """Each class alone, then all together."""
    starts = {name: await plane.start_alone(name, value) for name, value in pipeline.asked.items()}
    response, to_answer_s = await plane.ask(pipeline.name)
    await plane.at_zero()
    service_s = response.timing.service_ms / 1_000
    return {
        "to_answer_s": round(to_answer_s, 2),
        "allowed_s": round(cold.allowed_s(starts.values(), cores(), service_s, TIMES), 2),
        "sequential_s": round(sum(start.lone_s for start in starts.values()), 2),
        "service_s": round(service_s, 2),
        "by_class": {
            name: {"lone_s": round(start.lone_s, 2), "cpu_s": round(start.cpu_s, 2)} for name, start in starts.items()
        },
    }
