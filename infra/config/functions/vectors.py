"""Vectors of texts that never change, embedded once and kept in the home."""

import fcntl
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path

import numpy as np
import structlog
from numpy.typing import NDArray

from headway.minilm import DIMENSIONS, MODEL, MiniLM

CHUNK = 128  # texts between two progress lines, about 2 s
LOCK_TIMEOUT_S = 120.0
_log = structlog.get_logger("vectors")


def cached_vectors(folder: Path, name: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Unit vectors of `texts`, shape (len(texts), 384), from `<folder>/<name>-<digest>.npy`.

    The digest covers the texts and the model, so another Python or model embeds anew. Of workers that start
    together one embeds and the others wait for its file.
    """
    path = folder / f"{name}-{_digest(texts)}.npy"
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder / f"{name}.lock"):
        vectors = _load(path, len(texts))
        if vectors is None:
            vectors = _embed(name, texts)
            _save(path, vectors)
    return vectors


def _digest(texts: Sequence[str]) -> str:
    digest = sha256(MODEL.encode())
    for text in texts:
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()[:16]


def _load(path: Path, count: int) -> NDArray[np.float32] | None:
    """The stored vectors, or None where there are none that can be used."""
    try:
        vectors: NDArray[np.float32] = np.load(path)
    except (OSError, ValueError, EOFError):
        return None
    return vectors if vectors.shape == (count, DIMENSIONS) else None


def _save(path: Path, vectors: NDArray[np.float32]) -> None:
    """Whole or not at all: a reader never sees half a file, even after a kill."""
    part = path.with_suffix(f".{os.getpid()}.part")
    with part.open("wb") as file:
        np.save(file, vectors)
    part.replace(path)


def _embed(name: str, texts: Sequence[str]) -> NDArray[np.float32]:
    """Shortest texts first, so that a run pads little."""
    model = MiniLM()
    vectors = np.zeros((len(texts), DIMENSIONS), dtype=np.float32)
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    for start in range(0, len(order), CHUNK):
        rows = order[start : start + CHUNK]
        vectors[rows] = model.encode([texts[row] for row in rows])
        _log.info("embedded", index=name, done=start + len(rows), total=len(texts))
    return vectors


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Alone among processes; the kernel frees the lock of one that dies. TimeoutError after two minutes."""
    with path.open("w") as file:
        deadline = time.monotonic() + LOCK_TIMEOUT_S
        while not _try_lock(file.fileno()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{path} is still held by another process after {LOCK_TIMEOUT_S:.0f} s")
            time.sleep(0.1)
        yield


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
