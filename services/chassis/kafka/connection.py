"""How to reach the broker, and the prefixes that let several planes share one."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiokafka.helpers import create_ssl_context

from services.chassis.settings import KafkaSettings


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

    @classmethod
    def of(cls, settings: KafkaSettings, client_id: str) -> "Connection":
        """From the settings of a service."""
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
        )

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
