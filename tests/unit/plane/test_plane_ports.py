"""Which ports a plane takes."""

import socket
from collections.abc import Iterator

import pytest

from headway.plane.errors import PlaneError
from headway.plane.ports import choose_ports, free_ports, is_free, metrics_setting

SETTINGS = (
    "HEADWAY_PLANE_KAFKA_PORT",
    "HEADWAY_PLANE_REDIS_PORT",
    "HEADWAY_ORCHESTRATOR_METRICS_PORT",
    "HEADWAY_AGGREGATOR_METRICS_PORT",
    "HEADWAY_AUTOSCALER_METRICS_PORT",
    "HEADWAY_HOST_METRICS_PORT",
)


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def free_settings() -> dict[str, str]:
    return {setting: str(port) for setting, port in zip(SETTINGS, free_ports(len(SETTINGS)), strict=True)}


def test_free_ports_are_distinct_free_and_below_the_ephemeral_range() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(20_000 <= port < 32_000 and is_free(port) for port in ports)


def test_a_listening_port_is_not_free(taken: int) -> None:
    assert not is_free(taken)


def test_auto_takes_nothing_from_the_settings() -> None:
    ports = choose_ports("auto", {"HEADWAY_PLANE_KAFKA_PORT": "1"})
    assert len({ports.kafka, ports.redis, *ports.metrics.values()}) == 6
    assert set(ports.metrics) == {"orchestrator", "aggregator", "autoscaler", "host"}


def test_settings_move_the_default_ports() -> None:
    settings = free_settings()
    ports = choose_ports("default", settings)
    assert [ports.kafka, ports.redis, *ports.metrics.values()] == [int(settings[name]) for name in SETTINGS]


@pytest.mark.parametrize("setting", SETTINGS)
def test_a_taken_port_names_its_setting_and_the_flag(setting: str, taken: int) -> None:
    expected = rf"port {taken} on 127\.0\.0\.1 is taken: .* set {setting} to another port, or use --ports auto"
    with pytest.raises(PlaneError, match=expected):
        choose_ports("default", free_settings() | {setting: str(taken)})


@pytest.mark.parametrize("text", ["", "0", "65536", "-1", "http", "9092.0", "²"])
def test_what_is_no_port_is_refused(text: str) -> None:
    with pytest.raises(PlaneError, match=r"HEADWAY_PLANE_KAFKA_PORT=.* is no port"):
        choose_ports("default", free_settings() | {"HEADWAY_PLANE_KAFKA_PORT": text})


def test_two_parts_on_one_port_are_refused() -> None:
    settings = free_settings()
    settings["HEADWAY_PLANE_REDIS_PORT"] = settings["HEADWAY_PLANE_KAFKA_PORT"]
    with pytest.raises(PlaneError, match="HEADWAY_PLANE_KAFKA_PORT and HEADWAY_PLANE_REDIS_PORT are both"):
        choose_ports("default", settings)


def test_the_setting_of_a_service_follows_its_name() -> None:
    assert metrics_setting("orchestrator") == "HEADWAY_ORCHESTRATOR_METRICS_PORT"
