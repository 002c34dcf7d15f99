"""What an autoscaler has learned in days, as one leader writes it down for the next."""

from typing import Annotated, Literal

from pydantic import Field

from schemas.base import Contract
from services.autoscaler.domain.prediction import Accuracy, Level, Prediction
from services.autoscaler.domain.season import DAY_SLOTS, WEEK_SLOTS, Learned, Season

MAX_QUEUES, MAX_STEPS = 1_000, 20_000
Figure = Annotated[float, Field(ge=0, allow_inf_nan=False)]


class LearnedStep(Contract):
    """How often runs took a step, of those that could; older runs count less."""

    pipeline: str
    step: str
    taken: Figure
    runs: Figure


class LearnedQueue(Contract):
    """Of one queue."""

    service_s: Figure | None = None
    start_s: Figure = 0.0
    week: tuple[Learned, ...] = Field(default=(), max_length=WEEK_SLOTS)
    day: tuple[Learned, ...] = Field(default=(), max_length=DAY_SLOTS)
    accuracy: tuple[Figure, Figure] = (0.0, 0.0)
    """What the prediction missed by, and what came."""
    level: tuple[Figure, Figure] = (0.0, 0.0)
    """What came today, and what is usual."""

    @classmethod
    def of(cls, service_s: float | None, start_s: float, prediction: Prediction) -> "LearnedQueue":
        """All of it."""
        return cls(
            service_s=service_s,
            start_s=start_s,
            week=tuple(prediction.season.week),
            day=tuple(prediction.season.day),
            accuracy=prediction.accuracy,
            level=prediction.level,
        )

    def prediction(self) -> Prediction:
        """As it was."""
        return Prediction(Season.of(self.week, self.day), Accuracy(*self.accuracy), Level(*self.level))


class LearnedState(Contract):
    """Of all queues."""

    format: Literal[1] = 1
    queues: dict[str, LearnedQueue] = Field(default_factory=dict, max_length=MAX_QUEUES)
    steps: tuple[LearnedStep, ...] = Field(default=(), max_length=MAX_STEPS)


NOTHING_LEARNED = LearnedState()
