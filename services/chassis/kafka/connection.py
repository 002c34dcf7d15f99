"""How to reach the broker, and the prefixes that let several planes share one."""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka.helpers import create_ssl_context

from services.chassis.settings import KafkaSettings

ASK_AGAIN_S = 0.25
CONNECT_S = 1.0
"""For each server: one that has gone silent must not use up the patience for the others."""
PATIENCE_S = 25.0
"""Of a service. One that ends at once is started again after ever longer pauses, and would still be away for seconds
when the broker has come back."""


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything a client needs to reach the broker. Services use logical names; the prefixes are put on here."""

    bootstrap_servers: str
    """host:port, comma separated."""
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: str | None = field(default=None, repr=False)
    ssl_ca: Path | None = None
    topic_prefix: str = ""
    group_prefix: str = ""
    client_id: str = "headway"
    patience_s: float = 0.0
    """How long a client that starts waits for a broker that is not there."""

    @classmethod
    def of(cls, settings: KafkaSettings, client_id: str, patience_s: float = 0.0) -> "Connection":
        """From the settings of a process."""
        password = settings.sasl_password
        return cls(
            bootstrap_servers=settings.bootstrap_servers,
            security_protocol=settings.security_protocol,
            sasl_mechanism=settings.sasl_mechanism,
            sasl_username=settings.sasl_username,
            sasl_password=password.get_secret_value() if password else None,
            ssl_ca=settings.ssl_ca,
            topic_prefix=settings.topic_prefix,
            group_prefix=settings.group_prefix,
            client_id=client_id,
            patience_s=patience_s,
        )

    async def until_reachable(self) -> None:
        """Returns when some broker takes a connection, or patience ends: then the client's own error says it best."""
        loop = asyncio.get_running_loop()
        over_at = loop.time() + self.patience_s
        while loop.time() < over_at:
            if await self._is_reachable(over_at - loop.time()):
                return
            await asyncio.sleep(ASK_AGAIN_S)

    async def _is_reachable(self, timeout_s: float) -> bool:
        for server in self.bootstrap_servers.split(","):
            host, _, port = server.strip().rpartition(":")
            try:
                async with asyncio.timeout(min(CONNECT_S, timeout_s)):
                    _, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            except (OSError, ValueError, TimeoutError):
                continue
            writer.close()
            return True
        return False

    def topic(self, name: str) -> str:
        """The broker's name of a logical topic."""
        return self.topic_prefix + name

    def group(self, name: str) -> str:
        """The broker's name of a logical consumer group."""
        return self.group_prefix + name

    def client_settings(self) -> dict[str, Any]:
        """Keyword arguments that every aiokafka client takes."""
        secure = "SSL" in self.security_protocol
        ca = str(self.ssl_ca) if self.ssl_ca else None
        return {
            "bootstrap_servers": self.bootstrap_servers,
            "client_id": self.client_id,
            "security_protocol": self.security_protocol,
            "ssl_context": create_ssl_context(cafile=ca) if secure else None,
            "sasl_mechanism": self.sasl_mechanism,
            "sasl_plain_username": self.sasl_username,
            "sasl_plain_password": self.sasl_password,
            "metadata_max_age_ms": 30_000,
        }
