"""What only the embedding engine has to promise."""

import asyncio
import base64
from collections.abc import AsyncIterator

import numpy as np
import pytest
from numpy.typing import NDArray

from schemas.base import Json
from services.worker.domain.engine import DeadlineExceeded, Outcome, Result
from services.worker.engines.onnx import OnnxEngine
from tests.contract.engines.subjects import call

pytestmark = pytest.mark.models

QUESTION = "When are default parameter values evaluated?"


@pytest.fixture(scope="module")
async def engine() -> AsyncIterator[OnnxEngine]:
    engine = OnnxEngine("minilm-l6-int8")
    await engine.start()
    yield engine
    await engine.stop()


def vectors(outcome: Outcome) -> NDArray[np.float32]:
    assert isinstance(outcome, Result)
    rows: list[Json] = outcome.output["vectors"]
    return np.array([np.frombuffer(base64.b64decode(row), "<f4") for row in rows])


async def test_texts_of_many_calls_come_back_to_their_own_call_in_order(engine: OnnxEngine) -> None:
    texts = [QUESTION, "cats and dogs", "a " * 200, "What is a generator?", ""]
    alone = [vectors((await engine.infer([call({"texts": [text]})]))[0])[0] for text in texts]
    first, empty, last = await engine.infer(
        [call({"texts": texts[:2]}), call({"texts": []}), call({"texts": texts[2:]})]
    )
    assert isinstance(empty, Result)
    assert empty.output["vectors"] == []
    together = np.vstack([vectors(first), vectors(last)])
    assert np.all(np.sum(together * np.array(alone), axis=1) > 0.98)


async def test_what_means_the_same_is_near(engine: OnnxEngine) -> None:
    texts = [QUESTION, "At what time does Python compute the defaults of arguments?", "The cat sleeps."]
    (outcome,) = await engine.infer([call({"texts": texts})])
    question, paraphrase, other = vectors(outcome)
    assert question @ paraphrase > 0.5
    assert question @ other < 0.2


async def test_tokens_are_counted_by_call(engine: OnnxEngine) -> None:
    short, long = await engine.infer([call({"texts": ["one"]}), call({"texts": ["one two three", "four"]})])
    assert isinstance(short, Result)
    assert isinstance(long, Result)
    assert (short.usage.input_tokens, long.usage.input_tokens) == (3, 8)


async def test_a_hasty_call_is_late_while_its_neighbour_is_answered(engine: OnnxEngine) -> None:
    hasty, patient = await engine.infer([call({"texts": [QUESTION] * 64}, deadline_s=0.01), call({"texts": ["x"]})])
    assert isinstance(hasty, DeadlineExceeded)
    assert isinstance(patient, Result)


async def test_the_event_loop_goes_on_while_it_works(engine: OnnxEngine) -> None:
    task = asyncio.create_task(engine.infer([call({"texts": ["word " * 200] * 8})]))
    turns = 0
    while not task.done():
        await asyncio.sleep(0.001)
        turns += 1
    assert turns > 20
    assert isinstance(task.result()[0], Result)
