"""Deterministic ids: the same work has the same id wherever, and however often, it is named.

Every id is a uuid5, so that a repeat of an effect (a redelivered request, a response published twice) is a no-op for
whoever keys by it.
"""

import re
from functools import lru_cache
from hashlib import sha1
from typing import NamedTuple
from uuid import UUID, uuid5

_NAMESPACE = UUID("5f9ab9d8-0f2b-5d3c-9a46-64bc2f0e9c3a")
_TENANTS, _RESPONSES, _USAGE, _RECORDS = (
    uuid5(_NAMESPACE, name).bytes for name in ("tenant", "response", "usage", "record")
)

_TASK_ID = re.compile(r"([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})/([^#\x00-\x1f\x7f]{1,256})#([1-9][0-9]{0,8})")


class TaskId(NamedTuple):
    """The parts of a task id."""

    run_id: str
    step: str
    attempt: int


def _uuid5(namespace: bytes, name: str) -> str:
    """`str(uuid5(…))` in a third of its time: there are three a run."""
    found = bytearray(sha1(namespace + name.encode(), usedforsecurity=False).digest()[:16])
    found[6] = found[6] & 0x0F | 0x50  # version 5
    found[8] = found[8] & 0x3F | 0x80  # of RFC 4122
    text = found.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


@lru_cache(maxsize=1024)
def _tenant_namespace(tenant: str) -> bytes:
    return uuid5(UUID(bytes=_TENANTS), tenant).bytes


def run_id(tenant: str, request_id: str) -> str:
    """uuid5(tenant, request id): ids of two tenants never meet."""
    return _uuid5(_tenant_namespace(tenant), request_id)


def response_id(run_id: str) -> str:
    """The id of a run's one response."""
    return _uuid5(_RESPONSES, run_id)


def usage_id(run_id: str) -> str:
    """The id of a run's one bill."""
    return _uuid5(_USAGE, run_id)


def task_id(run_id: str, step: str, attempt: int) -> str:
    """`<run_id>/<step path>#<attempt>`, attempts from 1."""
    return f"{run_id}/{step}#{attempt}"


def parse_task_id(text: str) -> TaskId:
    """The inverse of `task_id`; ValueError for anything else."""
    match = _TASK_ID.fullmatch(text)
    if match is None:
        raise ValueError(f"not a task id: {text[:64]!r}; it is <run_id>/<step path>#<attempt>")
    return TaskId(match[1], match[2], int(match[3]))


def default_request_id(topic: str, partition: int, offset: int, log_time_ms: int) -> str:
    """The id of a request that came without one: by its coordinates, so that a redelivery has the same.

    The log time is part of it because offsets start again when a topic is recreated under its name.
    """
    return _uuid5(_RECORDS, f"{topic}/{partition}/{offset}/{log_time_ms}")
