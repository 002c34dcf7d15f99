"""Follows the fleet topic for what this host is told to run."""

from collections.abc import Callable, Sequence

from pydantic import ValidationError

from schemas import headers
from schemas.fleet import Placement
from services.chassis.clock import LogClock
from services.chassis.fleet import FOLLOW_TIMEOUT_S, FleetLog
from services.chassis.kafka.types import Record
from services.host.domain.orders import Order, obeyed

PLACEMENT = "placement"


class Orders:
    """The order in force."""

    def __init__(self, instance: str, clock: LogClock, on_order: Callable[[Order], None]) -> None:
        """`on_order` hears every order that this host is to obey."""
        self._instance = instance
        self._clock = clock
        self._on_order = on_order
        self._current: Order | None = None

    async def run(self, log: FleetLog) -> None:
        """A component."""
        while True:
            self.add(await log.follow(FOLLOW_TIMEOUT_S))

    def add(self, records: Sequence[Record]) -> None:
        """Takes records in log order."""
        for record in records:
            self._clock.observe(record.timestamp)
            placement = _placement(record)
            if placement is not None and placement.host == self._instance:
                self._take(Order(placement.epoch, record.timestamp, placement.queues))

    def _take(self, arrived: Order) -> None:
        now_ms = self._clock.now_ms()
        assert now_ms is not None, "the record told the time"
        in_force = obeyed(self._current, arrived, now_ms)
        if in_force is arrived:
            self._current = arrived
            self._on_order(arrived)


def _placement(record: Record) -> Placement | None:
    """None for what is none, or not one that this version can read."""
    if record.header(headers.MESSAGE_TYPE) != PLACEMENT:
        return None
    try:
        return Placement.model_validate_json(record.value or b"")
    except ValidationError:
        return None
