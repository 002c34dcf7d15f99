"""Who is in which consumer group. Of a member that was killed the broker knows only when its session is over."""

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from typing import NamedTuple

from aiokafka.client import AIOKafkaClient, CoordinationType
from aiokafka.protocol.admin import DescribeGroupsRequest, ListGroupsRequest
from aiokafka.protocol.group import LeaveGroupRequest


class Membership(NamedTuple):
    """Of one client of a process."""

    group: str
    member: str


async def memberships(bootstrap: str, service: str) -> set[Membership]:
    """Those of all processes of a service, by the instance that they name themselves: `<machine>-<service>-<hex>`."""
    found = set()
    async with _client(bootstrap) as client:
        listed = await client.send(client.get_random_node(), ListGroupsRequest())
        for group, _ in listed.groups:
            described = await client.send(await _coordinator(client, group), DescribeGroupsRequest([group]))
            ((*_, members),) = described.groups
            found |= {Membership(group, member) for member, name, *_ in members if name.split("-")[-2] == service}
    return found


async def end(bootstrap: str, dead: Collection[Membership]) -> None:
    """Their groups go on without them at once: it saves the session time-out, and nothing else."""
    async with _client(bootstrap) as client:
        for group, member in dead:
            await client.send(await _coordinator(client, group), LeaveGroupRequest(group, member))


async def _coordinator(client: AIOKafkaClient, group: str) -> int:
    node: int = await client.coordinator_lookup(CoordinationType.GROUP, group)
    return node


@asynccontextmanager
async def _client(bootstrap: str) -> AsyncIterator[AIOKafkaClient]:
    client = AIOKafkaClient(bootstrap_servers=bootstrap)
    await client.bootstrap()
    try:
        yield client
    finally:
        await client.close()
