"""The breaker at work: time passes by itself, and whoever listens hears each new state once."""

import asyncio

from schemas.fleet import CircuitState
from schemas.models import BreakerRules
from services.worker.circuit import Circuit
from services.worker.domain.breaker import TICK_S, Tally

CLOSED, OPEN, HALF_OPEN = CircuitState


def test_each_new_state_is_told_once() -> None:
    circuit, heard = Circuit(BreakerRules(), lambda: 0.0), list[CircuitState]()
    circuit.listen(heard.append)
    circuit.prove()
    circuit.trip()
    circuit.trip()
    circuit.prove()
    circuit.prove()
    assert heard == [OPEN, HALF_OPEN]
    assert (circuit.is_open, circuit.is_half_open) == (False, True)


async def test_calls_are_judged_as_time_passes() -> None:
    circuit, told = Circuit(BreakerRules(min_calls=1)), asyncio.Event()
    circuit.listen(lambda _: told.set())
    keeping = asyncio.create_task(circuit.keep())
    circuit.end(circuit.begin(1), Tally(bad=1))
    assert circuit.state is CLOSED
    async with asyncio.timeout(10 * TICK_S):
        await told.wait()
    assert circuit.state is OPEN
    keeping.cancel()
