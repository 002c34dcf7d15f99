"""The services' pages are read as they are, and who does not answer is named."""

import httpx
import pytest

from headway.cli.scrapes import Process, parsed, scrape

PAGE = """# HELP headway_slots_busy Slots at work.
# TYPE headway_slots_busy gauge
headway_slots_busy{backend="local",model_class="llm",worker="llm-1"} 2.0
headway_slots_busy{backend="local",model_class="llm",worker="llm-2"} 3.0
# HELP headway_worker_restarts_total Workers a host restarted.
# TYPE headway_worker_restarts_total counter
headway_worker_restarts_total{backend="local",model_class="llm"} 1.0
# HELP process_open_fds Number of open file descriptors.
# TYPE process_open_fds gauge
process_open_fds 12.0
"""
LLM = (("backend", "local"), ("model_class", "llm"))


def test_the_workers_on_a_hosts_page_are_processes_of_their_own() -> None:
    assert parsed("host", PAGE) == {
        Process("host", "llm-1"): {("headway_slots_busy", LLM): 2.0},
        Process("host", "llm-2"): {("headway_slots_busy", LLM): 3.0},
        Process("host", ""): {("headway_worker_restarts_total", LLM): 1.0},
    }


def answer(request: httpx.Request) -> httpx.Response:
    match request.url.port:
        case 9101:
            return httpx.Response(200, text=PAGE)
        case 9102:
            return httpx.Response(503, text="not ready")
        case 9103:
            return httpx.Response(200, text="<html> this is another server {")
    raise httpx.ConnectError("refused")


async def test_who_has_no_page_is_silent_and_the_others_are_read() -> None:
    ports = {"orchestrator": 9101, "aggregator": 9102, "autoscaler": 9103, "host": 9104}
    pages = {name: f"http://127.0.0.1:{port}/metrics" for name, port in ports.items()}
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        read = await scrape(client, pages)
    assert read.silent == ("aggregator", "autoscaler", "host")
    assert {process.page for process in read.processes} == {pages["orchestrator"]}


async def test_every_machine_behind_a_name_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def two(*_: object, **__: object) -> list[tuple[object, ...]]:
        return [(0, 0, 0, "", (address, 9101)) for address in ("10.0.0.2", "10.0.0.1", "10.0.0.2")]

    monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", two)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        read = await scrape(client, {"worker-fast": "http://worker-fast:9101/metrics"})
    assert {process.page for process in read.processes} == {
        "http://10.0.0.1:9101/metrics",
        "http://10.0.0.2:9101/metrics",
    }


async def test_a_name_that_nobody_bears_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    async def nobody(*_: object, **__: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr("asyncio.base_events.BaseEventLoop.getaddrinfo", nobody)
    async with httpx.AsyncClient(transport=httpx.MockTransport(answer)) as client:
        read = await scrape(client, {"worker-fast": "http://worker-fast:9101/metrics"})
    assert (read.silent, read.processes) == (("worker-fast",), {})
