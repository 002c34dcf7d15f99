"""Vectors as they travel between steps, and those of texts that never change, kept in the home."""

import base64
import binascii
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import numpy as np
import structlog
from numpy.typing import NDArray
from once import made_once
from pydantic import Field

from headway.functions import StepError
from headway.minilm import DIMENSIONS, MODEL, MiniLM
from schemas.errors import ErrorCode

CHUNK = 128  # texts between two progress lines, about 2 s
_log = structlog.get_logger("vectors")

EncodedVector = Annotated[str, Field(max_length=8 * DIMENSIONS, description="Base64 of 384 little-endian float32.")]


def unit_vector(encoded: str) -> NDArray[np.float32]:
    """The vector, scaled to length 1; StepError when it is none."""
    try:
        vector = np.frombuffer(base64.b64decode(encoded, validate=True), dtype="<f4")
    except (binascii.Error, ValueError):
        raise _refusal("is not base64 of whole float32 numbers") from None
    if len(vector) != DIMENSIONS:
        raise _refusal(f"has {len(vector)} numbers")
    length = float(np.linalg.norm(vector.astype(np.float64)))
    if not 0 < length < np.inf:
        raise _refusal("is all zeros, or holds a number that is not finite")
    return (vector / length).astype(np.float32)


def _refusal(why: str) -> StepError:
    message = f"`vector` {why}: pass one of the embedding class's `vectors`, {DIMENSIONS} float32 as base64"
    return StepError(message, code=ErrorCode.INVALID_INPUT)


def cached_vectors(folder: Path, name: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of `texts`, shape (len(texts), 384), from `<folder>/<name>-<digest>.npy`.

    The digest covers the texts and the model, so another Python or another model embeds anew.
    """
    digest = sha256("\0".join((MODEL, *texts)).encode()).hexdigest()[:16]
    path = folder / f"{name}-{digest}.npy"
    vectors: NDArray[np.float32] = np.load(made_once(path, lambda part: _embed(name, texts, part)))
    return vectors


def _embed(name: str, texts: Sequence[str], part: Path) -> None:
    """Shortest texts first, so that a run pads little."""
    model = MiniLM()
    vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for start in range(0, len(order), CHUNK):
        rows = order[start : start + CHUNK]
        vectors[rows] = model.encode([texts[row] for row in rows])
        _log.info("embedded", index=name, done=start + len(rows), total=len(texts))
    with part.open("wb") as file:
        np.save(file, vectors)
