"""Nine days of a real language model's load, as those who ran it recorded it: requests a second, in ten minutes each.

Alibaba Cloud Model Studio served it. These are the rates of all 43 clients of the model `m-small` in ServeGen (Xiang
et al., *ServeGen: Workload Characterization and Generation of Large Language Model Serving in Production*, 2025,
arXiv:2505.09999; github.com/alibaba/ServeGen at f891d11, Apache-2.0), added up and rounded. The last five of its
fourteen days have many gaps, and are left out; ten minutes of the eighth are one.
"""

from pathlib import Path
from typing import NamedTuple

from loadtest.virtual.days import DAY_S

FILE = Path(__file__).with_name("recorded.csv")
"""A line a day."""


class RecordedDay(NamedTuple):
    """One day."""

    rates: tuple[float, ...]
    """Requests a second, in each of as many parts of the day."""

    @property
    def peak_per_s(self) -> float:
        """Of the busiest part."""
        return max(self.rates)

    def per_s(self, at_s: float) -> float:
        """At a time since the epoch."""
        return self.rates[int(at_s % DAY_S / DAY_S * len(self.rates))]

    def times(self, factor: float) -> "RecordedDay":
        """The same shape, of more or less."""
        return RecordedDay(tuple(factor * rate for rate in self.rates))


def recorded(last_peak_per_s: float) -> list[RecordedDay]:
    """All of them, scaled so that the last one's busiest ten minutes are as busy as that."""
    lines = FILE.read_text(encoding="ascii").splitlines()
    days = [RecordedDay(tuple(map(float, line.split(",")))) for line in lines]
    return [day.times(last_peak_per_s / days[-1].peak_per_s) for day in days]
