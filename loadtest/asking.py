"""Requests to a pipeline as calls of a load."""

from collections.abc import Callable, Mapping
from typing import Unpack

from headway.client import HeadwayClient, NoResponseError, RequestOptions
from loadtest.generator import Call
from loadtest.measure import Outcome
from schemas.base import Json, RunStatus
from schemas.responses import InferenceResponse

TIMEOUT_S = 30.0

Input = Mapping[str, Json]


async def answer(
    headway: HeadwayClient,
    pipeline: str,
    value: Input,
    *,
    timeout_s: float = TIMEOUT_S,
    **options: Unpack[RequestOptions],
) -> InferenceResponse | None:
    """The response of a run that succeeds in time; None of any other."""
    try:
        response = await headway.run(pipeline, value, timeout_s=timeout_s, **options)
    except NoResponseError:
        return None
    return response if response.status is RunStatus.SUCCEEDED else None


def asking(
    headway: HeadwayClient,
    pipeline: str,
    value: Callable[[int], Input],
    *,
    timeout_s: float = TIMEOUT_S,
    **options: Unpack[RequestOptions],
) -> Call:
    """A call asks `pipeline` with `value(number)`; a run that succeeds tells where its time went."""

    async def call(number: int) -> Outcome:
        response = await answer(headway, pipeline, value(number), timeout_s=timeout_s, **options)
        return response.timing if response else False

    return call


def numbered(number: int) -> Input:
    """An input that tells one request from another."""
    return {"number": number}
