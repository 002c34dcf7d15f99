"""Does a text try to override the instructions of the model that will read it?

A linear classifier over MiniLM embeddings, fitted in 10 ms to the examples in `guard_examples/` (one text a line, of
what must be stopped and of what must not). To teach it, add a line and start it again.

Every sentence is judged as well as the whole, and the worst counts, so that an attack is not diluted by
harmless text around it. It raises the cost of an attack; it proves nothing. Best in English.
"""

import math
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from vectors import cached_vectors

from headway.functions import StepContext
from headway.minilm import DIMENSIONS, MiniLM

EXAMPLES = Path(__file__).parent / "guard_examples"
WINDOW_WORDS = 20  # of a long sentence; two windows overlap by half

RIDGE = 0.01
MARGIN = 0.15
"""Both chosen on texts that are not among the examples; the tests hold the figures."""


class Text(BaseModel):
    """What to judge."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    text: str = Field(max_length=8_192)


class Verdict(BaseModel):
    """`score` runs from 0 to 1; from 0.5 on the label is `injection`."""

    model_config = ConfigDict(frozen=True)

    label: Literal["injection", "safe"]
    score: float


class _Classifier(NamedTuple):
    model: MiniLM
    weights: NDArray[np.float32]  # (384,)
    bias: float


_loaded: list[_Classifier] = []


def warm_up(home: Path) -> None:
    """Embed the examples and fit: 2 s the first time, 0.5 s once the home has their vectors."""
    texts = {label: (EXAMPLES / f"{label}.txt").read_text("utf-8").splitlines() for label in ("injection", "safe")}
    weights = _fitted(*(cached_vectors(home / "index", f"guard-{label}", texts[label]) for label in texts))
    model = MiniLM()
    model.load()
    _loaded[:] = [_Classifier(model, weights[:DIMENSIONS], float(weights[DIMENSIONS]))]


def classify(input: Text, ctx: StepContext) -> Verdict:
    """About 8 ms for a question, 0.7 s for the longest text."""
    (classifier,) = _loaded
    vectors = classifier.model.encode(list(dict.fromkeys(_windows(_visible(input.text)))))
    worst = float((vectors @ classifier.weights).max()) + classifier.bias
    score = 1 / (1 + math.exp(-6 * (worst - MARGIN)))
    return Verdict(label="injection" if worst >= MARGIN else "safe", score=round(score, 4))


def _fitted(attacks: NDArray[np.float32], harmless: NDArray[np.float32]) -> NDArray[np.float32]:
    """Ridge regression to +1 for an attack and −1 for a harmless text, both sides weighing the same."""
    rows = np.vstack([attacks, harmless])
    rows = np.hstack([rows, np.ones((len(rows), 1), dtype=np.float32)])
    sides = np.repeat([1.0, -1.0], [len(attacks), len(harmless)])
    weighed = rows * np.repeat([0.5 / len(attacks), 0.5 / len(harmless)], [len(attacks), len(harmless)])[:, None]
    penalty = RIDGE * np.diag([*np.ones(DIMENSIONS), 0.0])
    return np.linalg.solve(weighed.T @ rows + penalty, weighed.T @ sides).astype(np.float32)


def _visible(text: str) -> str:
    """Without the invisible characters and look-alikes that hide a word from a filter but not from a model."""
    return "".join(c for c in unicodedata.normalize("NFKC", text) if unicodedata.category(c) != "Cf")


def _windows(text: str) -> Iterator[str]:
    """The whole, each sentence, and overlapping parts of a long one."""
    yield text
    step = WINDOW_WORDS // 2
    for sentence in re.split(r"(?<=[.!?:;])\s+|\n+", text):
        words = sentence.split()
        for start in range(0, max(1, len(words) - step), step):
            yield " ".join(words[start : start + WINDOW_WORDS])
