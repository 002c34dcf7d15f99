"""Makes a load on a plane and watches the plane meanwhile: CPU and memory by part, lag by lane."""

import asyncio
from collections.abc import Callable

from loadtest import resources
from loadtest.context import Context
from loadtest.generator import Call, Load, generate
from loadtest.lags import LagSeries, following_lags
from loadtest.measure import Measurement, PlaneUse


async def observe(context: Context, call: Call, load: Load | None = None) -> Measurement:
    """`generate` with the context's load, or another; the measurement also has what the plane took for it.

    CPU time is that of the measured time: the warm-up's is left out.
    """
    chosen = load or context.load
    async with following_lags(context.endpoints.kafka) as begin:
        counted = asyncio.create_task(_begin(context, chosen.warm_up_s, begin))
        try:
            measurement = await generate(chosen, call)
            after = await asyncio.to_thread(resources.usage, context.endpoints)
            before, lags = await counted
        finally:
            counted.cancel()
    measurement.plane = PlaneUse(resources.cpu_between(before, after), resources.rss_mib(after), lags.as_json())
    return measurement


async def _begin(
    context: Context, after_s: float, begin: Callable[[], LagSeries]
) -> tuple[dict[str, resources.Usage], LagSeries]:
    """Where the measured time begins. In a thread, since looking at processes takes longer than a call may wait."""
    await asyncio.sleep(after_s)
    return await asyncio.to_thread(resources.usage, context.endpoints), begin()
