"""How settings become a client's arguments."""

import pytest
from pydantic import SecretStr

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
