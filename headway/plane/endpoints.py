"""`endpoints.json`: where the plane of a home listens, written by `headway up`, read by every other command."""

import os
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headway.plane.errors import PlaneError

FILE_NAME = "endpoints.json"
SUPERVISOR = "plane"


class Endpoints(BaseModel):
    """The addresses and processes of one embedded plane."""

    model_config = ConfigDict(frozen=True)

    ready: bool = Field(description="every part is up and ready to serve")
    kafka: str = Field(description="bootstrap servers, host:port")
    redis: str = Field(description="URL of the Valkey server")
    gateway: str | None = Field(default=None, description="URL of the HTTP gateway, when there is one")
    metrics: dict[str, str] = Field(default_factory=dict, description="service name to the URL of its metrics")
    pids: dict[str, int] = Field(default_factory=dict, description="part to process id; `plane` is the supervisor")


def load_endpoints(home: Path) -> Endpoints:
    """The endpoints of the plane that runs in `home`, ready or not; a PlaneError when none does."""
    try:
        endpoints = Endpoints.model_validate_json((home / FILE_NAME).read_bytes())
    except FileNotFoundError:
        raise PlaneError(_not_up(home)) from None
    except ValidationError:
        raise PlaneError(f"{home / FILE_NAME} is damaged: stop the plane, then start it again") from None
    if not _is_alive(endpoints.pids.get(SUPERVISOR, 0)):
        raise PlaneError(_not_up(home))
    return endpoints


def write_endpoints(home: Path, endpoints: Endpoints) -> None:
    """Replaces the file in one step: a reader sees the old or the new one, never a half."""
    partial = home / f"{FILE_NAME}.partial"
    partial.write_text(endpoints.model_dump_json(indent=2) + "\n", encoding="utf-8")
    partial.replace(home / FILE_NAME)


def remove_endpoints(home: Path) -> None:
    (home / FILE_NAME).unlink(missing_ok=True)


def _not_up(home: Path) -> str:
    return f"no plane is up in {home}: start one with `headway up --home {home}`"


def _is_alive(pid: int) -> bool:
    if pid <= 0:
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # alive, but another user's
        return True
    return True
