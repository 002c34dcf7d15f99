"""How much work each task partition holds: what was appended, less what its worker has committed."""

from collections import defaultdict
from collections.abc import Mapping


class Outstanding:
    """Tasks by partition of one task topic, as far as this process can know.

    Acknowledgements carry absolute offsets, so the newest one counts every orchestrator's sends; sends not yet
    acknowledged are our own. Commits come from the workers' statuses; a partition nobody reports is unknown.
    """

    def __init__(self) -> None:
        self._end: dict[int, int] = {}
        self._pending: defaultdict[int, int] = defaultdict(int)
        self._committed: Mapping[int, int] = {}
        self._last: dict[int, int] = {}
        """As reported last; where nobody ever did, what was sent first is taken to wait, and nothing before it."""

    def sent(self, partition: int) -> None:
        """A task is on its way."""
        self._pending[partition] += 1

    def acknowledged(self, partition: int, offset: int) -> None:
        """It stands in the log."""
        self._pending[partition] -= 1
        self._end[partition] = max(self._end.get(partition, 0), offset + 1)
        self._last.setdefault(partition, offset)

    def reported(self, committed: Mapping[int, int]) -> None:
        """The next offset to be done, by partition, from all live workers."""
        self._committed = committed
        self._last.update(committed)

    def of(self, partition: int) -> int | None:
        """Tasks queued or running; None when unknown."""
        committed = self._committed.get(partition)
        if committed is None:
            return None
        return max(0, self._end.get(partition, committed) - committed) + self._pending[partition]

    def known_of(self, partition: int) -> int:
        """Tasks that are known of: of a partition that nobody reports, what stood in it then and was sent since."""
        committed = self._last.get(partition, 0)
        return max(0, self._end.get(partition, committed) - committed) + self._pending[partition]
