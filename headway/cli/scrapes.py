"""What the services' metrics pages say at one moment: their own ports are asked, and no Prometheus is needed."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Mapping
from time import monotonic
from typing import NamedTuple

import httpx
from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_S = 2.0
OURS = "headway_"
WORKER = "worker"
"""The label by which a host's page tells its workers apart."""

Series = tuple[str, tuple[tuple[str, str], ...]]
"""A sample's name, and its labels in order."""
Counts = Mapping[Series, float]


class Process(NamedTuple):
    """Who counted: a service, or a worker on the page of its host."""

    page: str
    worker: str


class Scrape(NamedTuple):
    """All pages at one moment."""

    at_s: float
    """By this machine's monotonic clock."""
    processes: Mapping[Process, Counts]
    silent: tuple[str, ...] = ()
    """Services that have not answered, or with something else than metrics."""


async def scrape(client: httpx.AsyncClient, pages: Mapping[str, str]) -> Scrape:
    """Asks all `pages` (URL by service) at once, and every machine that bears the name in a URL."""
    read = await asyncio.gather(*(_read(client, url) for url in pages.values()))
    processes = {process: counts for answers in read for page in answers if page for process, counts in page.items()}
    silent = tuple(name for name, answers in zip(pages, read, strict=True) if not answers or None in answers)
    return Scrape(monotonic(), processes, silent)


def parsed(page: str, text: str) -> Mapping[Process, Counts]:
    """What each process on a page has counted. Raises ValueError for what is no page of metrics."""
    processes: dict[Process, dict[Series, float]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples if family.name.startswith(OURS) else ():
            labels = dict(sample.labels)
            counts = processes.setdefault(Process(page, labels.pop(WORKER, "")), {})
            counts[sample.name, tuple(sorted(labels.items()))] = float(sample.value)
    return processes


async def _read(client: httpx.AsyncClient, url: str) -> list[Mapping[Process, Counts] | None]:
    """The page of each machine behind `url`; None for one that has none."""
    try:
        machines = await _machines(httpx.URL(url))
    except OSError:
        return []
    return await asyncio.gather(*(_page(client, machine) for machine in machines))


async def _machines(url: httpx.URL) -> list[httpx.URL]:
    """One URL for each address of the host: of a scaled service each instance has its own page."""
    found = await asyncio.get_running_loop().getaddrinfo(url.host, url.port, type=socket.SOCK_STREAM)
    return [url.copy_with(host=address) for address in sorted({str(peer[0]) for *_, peer in found})]


async def _page(client: httpx.AsyncClient, url: httpx.URL) -> Mapping[Process, Counts] | None:
    try:
        answer = await client.get(url, timeout=TIMEOUT_S)
        return parsed(str(url), answer.raise_for_status().text)
    except (httpx.HTTPError, ValueError):
        return None
