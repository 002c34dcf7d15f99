"""The paragraphs of the Python language reference nearest to a question's vector."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from corpus import Paragraph, paragraphs
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field
from vectors import EncodedVector, cached_vectors, unit_vector

from headway.functions import StepContext

MIN_SCORE = 0.45  # measured: right paragraphs have 0.52 and more, questions off topic 0.42 and less
CONTEXT_CHARS = 600  # more only confuses a small language model


class Query(BaseModel):
    """`vector` is the question's, as the embedding class returns it."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    vector: EncodedVector
    top_k: int = Field(default=3, ge=1, le=20)


class Document(BaseModel):
    """One paragraph; `score` is the cosine with the question."""

    model_config = ConfigDict(frozen=True)

    id: str
    topic: str
    text: str
    score: float


class Documents(BaseModel):
    """The best first; `relevant` if that one is about the question at all.

    `context` is as much of it as a small language model can use.
    """

    model_config = ConfigDict(frozen=True)

    documents: tuple[Document, ...]
    relevant: bool
    context: str


class _Index(NamedTuple):
    paragraphs: list[Paragraph]
    vectors: NDArray[np.float32]  # (len(paragraphs), 384), rows of length 1


_loaded: list[_Index] = []


def warm_up(home: Path) -> None:
    """Cut the reference into paragraphs and embed them: 17 s the first time, 0.1 s once the home has the vectors."""
    found = paragraphs()
    vectors = cached_vectors(home / "index", "reference", [paragraph.text for paragraph in found])
    _loaded[:] = [_Index(found, vectors)]


def retrieve(input: Query, ctx: StepContext) -> Documents:
    """Exact search: one product of all vectors with the question's, 0.2 ms."""
    (index,) = _loaded
    scores = index.vectors @ unit_vector(input.vector)
    best = np.argsort(-scores, kind="stable")[: input.top_k]
    documents = tuple(Document(**index.paragraphs[row]._asdict(), score=round(float(scores[row]), 4)) for row in best)
    first = documents[0]
    return Documents(documents=documents, relevant=first.score >= MIN_SCORE, context=_context(first.text))


def health() -> None:
    """Any paragraph is the nearest to itself."""
    (index,) = _loaded
    if int((index.vectors @ index.vectors[-1]).argmax()) != len(index.vectors) - 1:
        raise RuntimeError("the index does not find its own paragraphs")


def _context(text: str) -> str:
    """Whole sentences, up to CONTEXT_CHARS; a longer first sentence is cut."""
    head = text[:CONTEXT_CHARS]
    return text if head == text else head[: head.rfind(". ") + 1] or head
