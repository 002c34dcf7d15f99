"""When which fault is made: seeded, every kind in its proportion, the heavy ones spread out. Pure."""

import random
from collections.abc import Collection, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Planned:
    """One fault to come: seconds from the beginning, and its kind."""

    at_s: float
    kind: str


def schedule(
    faults: int, seed: int, duration_s: float, weights: Mapping[str, float], heavy: Collection[str] = ()
) -> list[Planned]:
    """`faults` faults over the time, one every so often with some luck in it, every kind at least once if there is
    room. Heavy kinds stand as far from each other as they can.
    """
    rng = random.Random(f"schedule:{seed}")
    kinds = _in_proportion(faults, weights, heavy, rng)
    spread = _spread([kind for kind in kinds if kind in heavy], [kind for kind in kinds if kind not in heavy], rng)
    step_s = duration_s / max(1, faults)
    return [Planned((index + rng.random()) * step_s, kind) for index, kind in enumerate(spread)]


def _in_proportion(
    faults: int, weights: Mapping[str, float], heavy: Collection[str], rng: random.Random
) -> list[str]:
    """Each kind once, the greatest weights first; the others by weight, the remainders by lot, none of it heavy."""
    first = sorted(weights, key=lambda kind: -weights[kind])[:faults]
    left, total = faults - len(first), sum(weights.values())
    shares = {kind: left * weight / total for kind, weight in weights.items()}
    whole = [kind for kind, share in shares.items() for _ in range(int(share))]
    parts = [0.0 if kind in heavy else share - int(share) for kind, share in shares.items()]
    lots = rng.choices(list(weights), parts, k=left - len(whole)) if left > len(whole) else []
    return [*first, *whole, *lots]


def _spread(heavy: list[str], light: list[str], rng: random.Random) -> list[str]:
    """Shuffled, with the heavy ones at equal distances."""
    rng.shuffle(heavy)
    rng.shuffle(light)
    every = (len(light) + len(heavy)) / (len(heavy) or 1)
    found = list(light)
    for number, kind in enumerate(heavy):
        found.insert(round((number + 0.5) * every), kind)
    return found
