"""The task partitions this worker owns between two rebalances: their lanes, and how far each is done."""

from collections.abc import Callable, Mapping
from functools import partial

from schemas.base import Priority
from schemas.models import Lanes
from services.chassis.kafka.types import Commit, Record, TopicPartition
from services.chassis.kafka.watermark import Watermark

MAX_SPAN = 500
"""Records of one partition between its commit and its newest delivery: what a crash would deliver again."""


class Assignment:
    """A new one makes the old one void: tasks that outlive it finish offsets nobody commits any more."""

    def __init__(self, lanes: Lanes, committed: Mapping[TopicPartition, int]) -> None:
        """`committed`: every partition owned, with the offset it starts at."""
        self._committed = dict(committed)
        self._watermarks = {tp: Watermark(MAX_SPAN) for tp in committed}
        lane_of = {partition: lane for lane in Priority for partition in lanes.of(lane)}
        # A partition of no lane (the topic has grown) is served like the lowest.
        self._lane_of = {tp: lane_of.get(tp.partition, Priority.BATCH) for tp in committed}
        self._partitions = {lane: [tp for tp in committed if self._lane_of[tp] is lane] for lane in Priority}

    def __len__(self) -> int:
        """How many partitions are owned."""
        return len(self._committed)

    def lane(self, record: Record) -> Priority | None:
        """The lane a record came by; None: its partition is not ours any more."""
        return self._lane_of.get(record.tp)

    def owns(self, lane: Priority) -> bool:
        """Whether anything of that lane can come here."""
        return bool(self._partitions[lane])

    def open(self, lane: Priority) -> list[TopicPartition]:
        """Partitions of a lane that may deliver more."""
        return [tp for tp in self._partitions[lane] if self._watermarks[tp].room]

    def deliver(self, record: Record) -> Callable[[], None] | None:
        """A record was handed out: what to call when its offset may be passed. None: it is not ours any more."""
        watermark = self._watermarks.get(record.tp)
        if watermark is None:
            return None
        watermark.delivered(record.offset)
        return partial(watermark.done, record.offset)

    def committable(self) -> dict[TopicPartition, Commit]:
        """Where the commit can move forward."""
        found = {}
        for tp, watermark in self._watermarks.items():
            offset = watermark.committable()
            if offset is not None and offset > self._committed[tp]:
                found[tp] = Commit(offset)
        return found

    def committed(self, offsets: Mapping[TopicPartition, Commit]) -> None:
        """These commits were made."""
        for tp, commit in offsets.items():
            self._committed[tp] = max(commit.offset, self._committed[tp])

    @property
    def progress(self) -> dict[int, int]:
        """The next offset by partition, as committed."""
        return {tp.partition: offset for tp, offset in self._committed.items()}
