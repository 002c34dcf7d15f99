"""The work of an assistant's users: all requests are embedded, 70 % look something up, 25 % run code; in sessions."""

from collections.abc import Mapping
from pathlib import Path

from headway.client import HeadwayClient
from loadtest.asking import answer
from loadtest.generator import Call
from loadtest.measure import Outcome
from schemas.base import Json

CONFIG = Path(__file__).parent / "mix"
PIPELINE = "assist"
SESSIONS = 64
TIMEOUT_S = 120.0
TEXT = "x" * 256


def request(number: int) -> Mapping[str, Json]:
    """The mix, exact over any twenty in a row: 14 look something up, 5 run code."""
    return {"text": TEXT, "retrieves": number * 7 % 10 < 7, "runs_code": number % 4 == 3}


def asking_the_mix(headway: HeadwayClient) -> Call:
    """Calls whose sessions take turns."""

    async def call(number: int) -> Outcome:
        session = f"session-{number % SESSIONS}"
        response = await answer(headway, PIPELINE, request(number), timeout_s=TIMEOUT_S, session=session)
        return False if response is None else response.timing

    return call
