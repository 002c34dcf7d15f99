"""The requests: seeded, of several shapes, each with a nonce that every step carries on."""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.chaos.weather import Mood
from schemas.base import Json

SHAPES = {
    "fan": 30, "chain": 18, "gated": 14, "fallback": 8, "optional": 8,
    "retried": 7, "bounded": 5, "large": 6, "risky": 4,
}  # fmt: skip
"""How often each pipeline is asked."""
PRIORITIES = ("interactive", "standard", "batch")
SESSIONS = 50
DEADLINES_MS = (15_000, 60_000)
FILLER_BYTES = (17_000, 48_000)
SLOW_MS = 600

SCRIPTED: dict[Mood, tuple[str, Json]] = {
    Mood.ENGINE_FAILING: ("risky", {"fail": "engine_unavailable"}),
    Mood.ENGINE_SLOW: ("risky", {"latency_ms": SLOW_MS}),
    Mood.ENGINE_HANGING: ("bounded", {"hang": True}),
    Mood.LARGE: ("large", None),
}
"""The pipeline a mood asks for, and what its engine is told to do."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request as a client means it."""

    request_id: str
    pipeline: str
    input: dict[str, Json]
    priority: str
    session: str | None
    deadline_ms: int

    @property
    def body(self) -> dict[str, Json]:
        """The record's value."""
        fields = {
            "request_id": self.request_id,
            "pipeline": self.pipeline,
            "input": self.input,
            "priority": self.priority,
            "deadline_ms": self.deadline_ms,
            "labels": {"nonce": self.input["nonce"]},
        }
        return fields | ({"session": self.session} if self.session else {})


def make(seed: int, number: int, moods: Sequence[Mood] = ()) -> Ask:
    """Request `number` of a run. The same whenever it is made, but for the moods that script it."""
    rng = random.Random(f"{seed}:{number}")
    pipeline = rng.choices(list(SHAPES), list(SHAPES.values()))[0]
    nonce = nonce_of(seed, number)
    script: Json = None
    for mood in moods:
        if mood in SCRIPTED:
            pipeline, script = SCRIPTED[mood]
    return Ask(
        request_id=f"chaos-{seed}-{number}",
        pipeline=pipeline,
        input=_input(pipeline, nonce, script, rng),
        priority=rng.choice(PRIORITIES),
        session=f"session-{rng.randrange(SESSIONS)}" if rng.random() < 0.3 else None,
        deadline_ms=rng.randrange(*DEADLINES_MS),
    )


def contradicting(ask: Ask) -> dict[str, Json]:
    """Another body under the same id."""
    return {**ask.body, "input": {**ask.input, "nonce": f"{ask.input['nonce']}-other"}}


def nonce_of(seed: int, number: int) -> str:
    """Of one request, and no other."""
    return f"nonce-{seed}-{number}-"


def _input(pipeline: str, nonce: str, script: Json, rng: random.Random) -> dict[str, Json]:
    given: dict[str, Json] = {"nonce": nonce, "n": rng.randrange(1_000)}
    if script is not None:
        given["simulate"] = script
    if pipeline == "gated":
        given["pass"] = rng.random() < 0.7
    if pipeline == "large":
        given["filler"] = (nonce * 4_000)[: rng.randrange(*FILLER_BYTES)]
    return given
