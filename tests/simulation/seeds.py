"""Seeds, simulated and checked."""

from collections import Counter
from collections.abc import Sequence
from contextlib import nullcontext
from typing import NamedTuple

from tests.simulation.bugs import infected
from tests.simulation.checks import Violation, violations
from tests.simulation.simulation import simulate


class Outcome(NamedTuple):
    """What one seed showed."""

    seed: int
    found: Sequence[Violation]
    befell: Counter[str]
    digest: str


def run_seed(seed: int, bug: str | None = None) -> Outcome:
    """Simulates one seed, perhaps with a bug in the services, and checks it."""
    with infected(bug) if bug else nullcontext():
        history = simulate(seed)
    return Outcome(seed, violations(history), Counter(history.befell), history.digest)


def first_caught(bug: str, seeds: Sequence[int]) -> Outcome | None:
    """The first of these seeds that shows the bug."""
    return next((outcome for seed in seeds if (outcome := run_seed(seed, bug)).found), None)
