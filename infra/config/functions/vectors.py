"""Vectors of texts that never change, embedded once and kept in the home."""

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray
from once import made_once

from headway.minilm import DIMENSIONS, MODEL, MiniLM

CHUNK = 128  # texts between two progress lines, about 2 s
_log = structlog.get_logger("vectors")


def kept_vectors(home: Path, name: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of `texts`, shape (len(texts), 384), from `<home>/index/<name>-<digest>.npy`.

    The digest covers the texts and the model, so another Python or another model embeds anew.
    """
    digest = sha256("\0".join((MODEL, *texts)).encode()).hexdigest()[:16]
    path = home / "index" / f"{name}-{digest}.npy"
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
