"""One engine of each kind for the whole run."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from tests.contract.engines.kinds import KINDS, Kind, Running
from tests.contract.engines.subjects import Subject
from tests.contract.engines.triton_server import TritonMissingError


@pytest.fixture(scope="session")
async def running() -> AsyncIterator[Running]:
    """Skips the test where a kind cannot be had, and says why."""
    found: dict[str, Subject | TritonMissingError] = {}
    async with AsyncExitStack() as stack:

        async def start(name: str) -> Subject:
            if name not in found:
                found[name] = await begin(KINDS[name])
            subject = found[name]
            if isinstance(subject, TritonMissingError):
                pytest.skip(str(subject))
            return subject

        async def begin(kind: Kind) -> Subject | TritonMissingError:
            beside = [await start(kind.beside)] if kind.beside else []
            try:
                return await stack.enter_async_context(kind.start(*beside))
            except TritonMissingError as error:
                return error

        yield start
