"""Which ports a plane listens on."""

import os
import random
import socket
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal

from headway.plane.errors import PlaneError

PortMode = Literal["default", "auto"]

HOST = "127.0.0.1"
DEFAULT_KAFKA_PORT = 9092
DEFAULT_REDIS_PORT = 6379
DEFAULT_METRICS_PORTS = {"orchestrator": 9101, "aggregator": 9102, "autoscaler": 9103, "host": 9104}


@dataclass(frozen=True)
class Ports:
    """Ports on 127.0.0.1; `metrics` by service name."""

    kafka: int
    redis: int
    metrics: Mapping[str, int]


def choose_ports(mode: PortMode, environment: Mapping[str, str] = os.environ) -> Ports:
    """The documented ports (a setting may move each), or free ones. A taken port is a PlaneError."""
    wanted = {
        "HEADWAY_PLANE_KAFKA_PORT": DEFAULT_KAFKA_PORT,
        "HEADWAY_PLANE_REDIS_PORT": DEFAULT_REDIS_PORT,
    } | {metrics_setting(service): port for service, port in DEFAULT_METRICS_PORTS.items()}
    if mode == "auto":
        chosen = dict(zip(wanted, free_ports(len(wanted)), strict=True))
    else:
        chosen = {setting: _configured(setting, port, environment) for setting, port in wanted.items()}
        _refuse_shared(chosen)
    return Ports(
        kafka=chosen["HEADWAY_PLANE_KAFKA_PORT"],
        redis=chosen["HEADWAY_PLANE_REDIS_PORT"],
        metrics={service: chosen[metrics_setting(service)] for service in DEFAULT_METRICS_PORTS},
    )


def metrics_setting(service: str) -> str:
    """The environment variable by which a service learns its metrics port."""
    return f"HEADWAY_{service.upper()}_METRICS_PORT"


def is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        # As servers bind: connections of an earlier server that linger in TIME_WAIT do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def require_free(port: int) -> None:
    """Refuses a taken port before a server is started on it: another server's answers must not pass for its own."""
    if not is_free(port):
        raise PlaneError(f"port {port} on {HOST} is taken: stop what listens there, or use --ports auto")


def free_ports(count: int, besides: Collection[int] = ()) -> list[int]:
    """Distinct free ports below the ephemeral range, so that no outgoing connection takes one meanwhile.

    `besides`: chosen already, though nothing listens there yet.
    """
    found: list[int] = []
    candidates = random.sample(range(20_000, 32_000), 1_000)
    for port in candidates:
        if len(found) == count:
            return found
        if port not in besides and is_free(port):
            found.append(port)
    raise PlaneError("no free port between 20000 and 32000 on 127.0.0.1: stop what listens there")


def _refuse_shared(chosen: Mapping[str, int]) -> None:
    setting_of: dict[int, str] = {}
    for setting, port in chosen.items():
        if (other := setting_of.setdefault(port, setting)) != setting:
            raise PlaneError(f"{other} and {setting} are both {port}: set one of them to another port")


def _configured(setting: str, default: int, environment: Mapping[str, str]) -> int:
    text = environment.get(setting, str(default))
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) < 65_536:
        raise PlaneError(f"{setting}={text!r} is no port: set it to a number from 1 to 65535")
    if not is_free(int(text)):
        raise PlaneError(
            f"port {text} on {HOST} is taken: stop what listens there, set {setting} to another port, "
            "or use --ports auto"
        )
    return int(text)
