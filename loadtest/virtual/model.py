"""What a model class is, to a simulation."""

import math
import random
from typing import NamedTuple

from schemas.models import Resources

WAKE_SHARE = 0.1
"""Of a load: how long a sleeping worker takes to wake. vLLM's authors measured a 18th to a 200th of one."""
ASLEEP_SHARE = 0.1
"""Of a warm worker's price: a sleeping one holds its machine's memory, but neither GPU nor CPU."""
SPREAD = 0.5
"""Standard deviation of a task's time, of its mean: lognormal."""


class Model(NamedTuple):
    """One class, with one backend."""

    name: str
    load_s: float
    service_s: float
    slots: int = 4
    usd_per_hour: float = 1.0
    wake_share: float = WAKE_SHARE
    resources: Resources = Resources()

    @property
    def wake_s(self) -> float:
        return self.load_s * self.wake_share

    def draw_s(self, dice: random.Random) -> float:
        """The time that a task takes."""
        sigma2 = math.log(1 + SPREAD**2)
        return dice.lognormvariate(math.log(self.service_s) - sigma2 / 2, math.sqrt(sigma2))
