"""What an autoscaler has learned in days, as one leader writes it down for the next."""

from typing import Literal, Self

from pydantic import Field, model_validator

from schemas.base import Contract
from services.autoscaler.domain.prediction import Accuracy, Level, Prediction
from services.autoscaler.domain.season import DAY_SLOTS, WEEK_SLOTS, Figure, Learned, Season

MAX_QUEUES, MAX_STEPS = 1_000, 20_000


class LearnedStep(Contract):
    """How often runs took a step, of those that could; older runs count less."""

    pipeline: str
    step: str
    taken: Figure
    runs: Figure

    @model_validator(mode="after")
    def _is_a_share(self) -> Self:
        if self.taken > self.runs:
            raise ValueError(f"taken {self.taken} > runs {self.runs}")
        return self


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
