"""Calls over HTTP as engines make them: on kept connections, to answers of a bounded size, never redirected."""

from collections.abc import Callable, Mapping
from email.utils import parsedate_to_datetime
from typing import NamedTuple

import httpx

from services.worker.domain.engine import EngineFailed, EngineUnavailable

CONNECT_TIMEOUT_S = 5.0
IDLE_S = 2.0
"""A connection that waits longer for its next call is closed: servers close theirs after 5 s or more."""
MAX_RETRY_AFTER_S = 3_600.0
_HEADERS = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "Accept-Encoding": "identity",  # a hundred compressed bytes may be a gigabyte
}
_BROKEN = (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError)
_DIALLED = "connection.connect_tcp.started"
_ANSWERED = "http11.receive_response_headers.complete"


class Answer(NamedTuple):
    """A server's whole answer."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class HttpCalls:
    """A server's address, the headers it is sent, and the connections to it.

    Nothing bounds a call's time but the task that awaits it; cancelling that closes the connection, by which a
    server knows that nobody listens any more.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str],
        *,
        max_answer_bytes: int,
        by_proxy: bool = True,
        keeps_connections: bool = True,
    ) -> None:
        self._url = url
        self.where = url.partition("?")[0]
        """The address as it may be shown: what follows a `?` may be a key."""
        self._max_answer_bytes = max_answer_bytes
        self._client = httpx.AsyncClient(
            headers=_HEADERS | dict(headers),
            trust_env=by_proxy,
            timeout=httpx.Timeout(None, connect=CONNECT_TIMEOUT_S),
            limits=httpx.Limits(  # the worker's slots bound them
                max_connections=None,
                max_keepalive_connections=None if keeps_connections else 0,
                keepalive_expiry=IDLE_S,
            ),
        )

    async def page(self, url: str) -> Answer:
        """Of the same server: it is sent the same headers. Raises as `send`."""
        try:
            return await self._answer(self._client.build_request("GET", url))
        except httpx.HTTPError as error:
            raise EngineUnavailable(f"{type(error).__name__} at {url}") from None

    async def send(
        self,
        body: bytes,
        *,
        method: str = "POST",
        headers: Mapping[str, str] | None = None,
        on_data: Callable[[bytes], None] | None = None,
    ) -> Answer:
        """EngineUnavailable when there is no answer, EngineFailed for one that is too large.

        `on_data` is given the bytes of an answer with status 200 as they come; what it raises ends the call.
        """
        seen: set[str] = set()

        async def trace(event: str, _: object) -> None:
            seen.add(event)

        request = self._client.build_request(
            method, self._url, content=body, headers=headers, extensions={"trace": trace}
        )
        try:
            try:
                return await self._answer(request, on_data)
            except _BROKEN:
                if seen & {_DIALLED, _ANSWERED}:
                    raise
                # The server closed a kept connection just when it was used again.
                return await self._answer(request, on_data)
        except httpx.HTTPError as error:
            raise EngineUnavailable(f"{type(error).__name__} at {self.where}") from None

    async def _answer(self, request: httpx.Request, on_data: Callable[[bytes], None] | None = None) -> Answer:
        response = await self._client.send(request, stream=True)
        content = bytearray()
        try:
            async for chunk in response.aiter_raw():
                content += chunk
                if len(content) > self._max_answer_bytes:
                    raise EngineFailed(f"the answer is larger than {self._max_answer_bytes} bytes", retryable=False)
                if on_data is not None and response.status_code == 200:
                    on_data(chunk)
        finally:
            await response.aclose()
        return Answer(response.status_code, response.headers, bytes(content))

    async def close(self) -> None:
        """No connection is left."""
        await self._client.aclose()


def header_value(value: str | None, variable: str) -> str:
    """A secret header's value; EngineUnavailable says which variable is missing or unfit, and never its value."""
    if not value:
        raise EngineUnavailable(f"set the environment variable {variable}")
    if not (value.isascii() and value.isprintable()):
        raise EngineUnavailable(f"{variable} holds characters that no HTTP header can carry")
    return value


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds until the server wants to be asked again: of a date those since `Date`, which is by the same clock."""
    said = headers.get("Retry-After", "")
    try:
        seconds = float(said)
    except ValueError:
        seconds = _seconds_between(headers.get("Date", ""), said)
    return seconds if 0 <= seconds <= MAX_RETRY_AFTER_S else None


def _seconds_between(now: str, then: str) -> float:
    """-1 where either is no date."""
    try:
        return (parsedate_to_datetime(then) - parsedate_to_datetime(now)).total_seconds()
    except (ValueError, TypeError):
        return -1.0
