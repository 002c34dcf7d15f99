"""How a command finds the plane, and runs its coroutine against it."""

from __future__ import annotations

from collections.abc import Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from headway.cli.exits import CliError, Exit

if TYPE_CHECKING:
    from headway.client import HeadwayClient
    from services.chassis.kafka.connection import Connection

T = TypeVar("T")


def reach(home: Path) -> Connection:
    """The broker of the plane that is up in `home`, else that of HEADWAY_KAFKA_BOOTSTRAP_SERVERS; else a CliError."""
    from headway.plane.endpoints import load_endpoints
    from headway.plane.errors import PlaneError
    from services.chassis.kafka.connection import Connection
    from services.chassis.settings import KafkaSettings

    settings = KafkaSettings.load()
    try:
        settings = settings.model_copy(update={"bootstrap_servers": load_endpoints(home).kafka})
    except PlaneError as error:
        if "bootstrap_servers" not in settings.model_fields_set:
            raise CliError(str(error), Exit.UNREACHABLE) from None
    return Connection.of(settings, "headway-cli")


def store(home: Path) -> str:
    """The address of the store of the plane that is up in `home`, else HEADWAY_REDIS_URL."""
    from headway.plane.endpoints import load_endpoints
    from headway.plane.errors import PlaneError
    from services.chassis.settings import RedisSettings

    try:
        return load_endpoints(home).redis
    except PlaneError:
        return RedisSettings.load().url.get_secret_value()


def client(broker: Connection) -> HeadwayClient:
    """A Python client of that broker; enter it to connect."""
    from headway.client import HeadwayClient
    from schemas.topics import REQUESTS, RESPONSES

    options = broker.client_settings()
    return HeadwayClient(
        options.pop("bootstrap_servers"),
        request_topic=broker.topic(REQUESTS),
        response_topic=broker.topic(RESPONSES),
        kafka_options=options,
    )


def complete(work: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine to its end. Libraries keep quiet: what matters is raised."""
    import asyncio
    import logging

    logging.disable(logging.CRITICAL)
    return asyncio.run(work)
