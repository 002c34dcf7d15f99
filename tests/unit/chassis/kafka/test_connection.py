"""How settings become a client's arguments."""

import asyncio

import pytest
from pydantic import SecretStr

from headway.plane.ports import free_ports
from services.chassis.kafka import connection as module
from services.chassis.kafka.connection import Connection
from services.chassis.settings import KafkaSettings


def test_settings_become_a_connection() -> None:
    settings = KafkaSettings(
        bootstrap_servers="a:9092,b:9092",
        security_protocol="SASL_PLAINTEXT",
        sasl_username="headway",
        sasl_password=SecretStr("hunter2"),
        topic_prefix="blue.",
        group_prefix="green.",
    )
    connection = Connection.of(settings, "worker-1")
    arguments = connection.client_settings()
    assert arguments["bootstrap_servers"] == "a:9092,b:9092"
    assert arguments["client_id"] == "worker-1"
    assert (arguments["sasl_plain_username"], arguments["sasl_plain_password"]) == ("headway", "hunter2")
    assert arguments["ssl_context"] is None
    assert (connection.topic("in"), connection.group("g")) == ("blue.in", "green.g")


@pytest.mark.parametrize("protocol", ["SSL", "SASL_SSL"])
def test_tls_checks_the_brokers_name(protocol: str) -> None:
    context = Connection("a:9093", security_protocol=protocol).client_settings()["ssl_context"]
    assert context.check_hostname


def test_a_password_is_in_no_representation() -> None:
    assert "hunter2" not in repr(Connection("a:9092", sasl_password="hunter2"))


async def test_a_patient_client_waits_for_a_broker_that_is_not_there_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    port = free_ports(1)[0]
    monkeypatch.setattr(module, "ASK_AGAIN_S", 0.0)
    waiting = asyncio.create_task(Connection(f"127.0.0.1:1,127.0.0.1:{port}", patience_s=30.0).until_reachable())
    done, _ = await asyncio.wait([waiting], timeout=0.2)
    assert not done
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
        await asyncio.wait_for(waiting, 10)


async def test_a_server_that_is_silent_does_not_keep_it_from_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = asyncio.open_connection

    async def connect_unless_silent(host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """As by a host that is down: nothing comes back, not even a refusal."""
        if host == "silent":
            await asyncio.Event().wait()
        return await connect(host, port)

    monkeypatch.setattr(asyncio, "open_connection", connect_unless_silent)
    monkeypatch.setattr(module, "CONNECT_S", 0.05)
    port = free_ports(1)[0]
    async with await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", port):
        await asyncio.wait_for(Connection(f"silent:9092,127.0.0.1:{port}", patience_s=30.0).until_reachable(), 10)


async def test_an_impatient_one_does_not_even_ask() -> None:
    await asyncio.wait_for(Connection("nowhere.invalid:1").until_reachable(), 1)


async def test_patience_ends() -> None:
    await asyncio.wait_for(Connection(f"127.0.0.1:{free_ports(1)[0]}", patience_s=0.3).until_reachable(), 10)
