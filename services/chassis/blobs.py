"""Claim checks: values too large for a record, stored by their content before a record refers to them.

The store is durable truth: a folder (or volume) that all services of a plane share, kept longer than any topic.
"""

import asyncio
import errno
import hashlib
import os
import re
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Protocol, TypeVar

from pydantic_core import from_json, to_json

from schemas.base import BlobRef, Json, Output
from schemas.topics import RETENTION_MS
from services.chassis.logging import log

INLINE_BYTES = 16_384
"""An output up to this size travels in its record."""
MAX_DEPTH = 64
"""Levels of arrays and objects in one value."""
RETENTION_S = 2 * RETENTION_MS / 1_000
"""A blob outlives every record that may name it."""
SWEEP_EVERY_S = 3_600.0
CACHE_BYTES = 8 << 20
TIMEOUT_S = 5.0
SLOWEST_BYTES_PER_S = 10 << 20
"""A volume that moves less is as good as away. A snapshot may have a hundred MiB."""
THREADS = 2
MAX_WAITING = 64

_DIGEST = re.compile(r"[0-9a-f]{64}")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_T = TypeVar("_T")


class BlobMissingError(Exception):
    """There is no such blob (any more), or it does not hold what its name says. Trying again does not help."""


class BlobUnavailableError(Exception):
    """The store cannot be used just now: full, slow, or not there. Trying again may help."""


class BlobStore(Protocol):
    """Content-addressed bytes. Putting the same content twice is one blob, as young as the second put."""

    async def put(self, content: bytes) -> BlobRef:
        """Durable when this returns. Raises BlobUnavailableError."""

    async def get(self, ref: BlobRef) -> bytes:
        """Exactly what was put. Raises BlobMissingError, BlobUnavailableError."""

    async def delete(self, ref: BlobRef) -> None:
        """Only for who alone names it, and does no more. One that is gone already is fine.

        Raises BlobUnavailableError.
        """


class Outputs:
    """Values as they travel: inline while small, else by claim check."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store

    async def store_output(self, value: Json) -> Output:
        """Inline up to 16 KiB of JSON, else put first and named.

        Raises BlobUnavailableError, and ValueError for what cannot be carried: no JSON (NaN becomes null, as in every
        message), or more than MAX_DEPTH levels.
        """
        content = _content(value)
        if len(content) <= INLINE_BYTES:
            return Output(value=value)
        return Output(ref=await self._store.put(content))

    async def check_in(self, output: Output) -> Output:
        """By claim check whatever its size: for a record in which many small values are too many. Raises likewise."""
        return output if output.ref is not None else Output(ref=await self._store.put(_content(output.value)))

    async def load_output(self, output: Output) -> Json:
        """The value, wherever it is. Raises BlobMissingError, BlobUnavailableError."""
        if output.ref is None:
            return output.value
        content = await self._store.get(output.ref)
        try:
            return from_json(content)
        except ValueError as error:
            raise BlobMissingError(f"blob {output.ref.sha256[:12]} holds no JSON that can be read") from error


def require_depth(value: Json) -> None:
    """Raises ValueError for more than MAX_DEPTH levels: a parser reads 200, and records nest values in values."""
    level, inner = 0, [value]
    while inner := [child for item in inner if isinstance(item, dict | list | tuple) for child in _children(item)]:
        level += 1
        if level > MAX_DEPTH:
            raise ValueError(f"the value is nested deeper than {MAX_DEPTH} levels")


def _children(item: Mapping[str, Json] | Sequence[Json]) -> Iterable[Json]:
    return item.values() if isinstance(item, Mapping) else item


def _content(value: Json) -> bytes:
    content = to_json(value, inf_nan_mode="null")
    if content.count(b"[") + content.count(b"{") > MAX_DEPTH:
        require_depth(value)
    return content


def _ref(content: bytes) -> BlobRef:
    return BlobRef(sha256=hashlib.sha256(content).hexdigest(), size_bytes=len(content))


class InMemoryBlobStore:
    """The twin: a dictionary whose faults a test can choose."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.unavailable = False

    async def put(self, content: bytes) -> BlobRef:
        self._fail_if_unavailable()
        ref = _ref(content)
        self.blobs[ref.sha256] = content
        return ref

    async def get(self, ref: BlobRef) -> bytes:
        self._fail_if_unavailable()
        content = self.blobs.get(ref.sha256)
        if content is None:
            raise BlobMissingError(f"no blob {ref.sha256[:12]}")
        return content

    async def delete(self, ref: BlobRef) -> None:
        self._fail_if_unavailable()
        self.blobs.pop(ref.sha256, None)

    def _fail_if_unavailable(self) -> None:
        if self.unavailable:
            raise BlobUnavailableError("the blob store is not available")


class FolderBlobStore:
    """Blobs as files `<folder>/<first two digits>/<sha256>`, written beside and renamed, so never seen half.

    File calls run in two threads of their own and are given up after 5 s: a hung volume must not hang the event loop.
    A process that only reads a blob again finds it in a small cache.
    """

    def __init__(self, folder: Path, cache_bytes: int = CACHE_BYTES) -> None:
        self._folder = folder
        self._cache = _Cache(cache_bytes)
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="blobs")
        self._free = asyncio.Semaphore(MAX_WAITING)

    async def put(self, content: bytes) -> BlobRef:
        return await self._off_loop(lambda: self._put(content), len(content))

    async def get(self, ref: BlobRef) -> bytes:
        cached = self._cache.get(ref.sha256)
        if cached is None:
            cached = await self._off_loop(lambda: self._get(ref), ref.size_bytes)
            self._cache.add(ref.sha256, cached)
        return cached

    async def delete(self, ref: BlobRef) -> None:
        await self._off_loop(lambda: self._path(ref.sha256).unlink(missing_ok=True))

    async def sweep(self, older_than_s: float = RETENTION_S) -> int:
        """Removes blobs last put longer ago than this, and what crashes left half-written; how many."""
        return await asyncio.to_thread(lambda: sum(self._expire(file, older_than_s) for file in self._files()))

    async def sweep_forever(self) -> None:
        """A component: one process of a plane is enough, several do no harm."""
        while True:
            removed = await self.sweep()
            log.info("blobs_swept", removed=removed)
            await asyncio.sleep(SWEEP_EVERY_S)

    def close(self) -> None:
        """Lets the threads go; what still waits is given up."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _off_loop(self, work: Callable[[], _T], size_bytes: int = 0) -> _T:
        limit_s = TIMEOUT_S + size_bytes / SLOWEST_BYTES_PER_S
        try:
            async with asyncio.timeout(limit_s), self._free:
                return await asyncio.get_running_loop().run_in_executor(self._pool, work)
        except TimeoutError:
            raise BlobUnavailableError(f"{self._folder}: no answer within {limit_s:.0f} s") from None
        except OSError as error:
            hint = "; free some space there" if error.errno in _FULL else ""
            raise BlobUnavailableError(f"{self._folder}: {error.strerror}{hint}") from error

    def _path(self, digest: str) -> Path:
        return self._folder / digest[:2] / digest

    def _put(self, content: bytes) -> BlobRef:
        ref = _ref(content)
        path = self._path(ref.sha256)
        try:
            os.utime(path)
        except FileNotFoundError:
            self._write(path, content)
        return ref

    def _write(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        beside = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            with os.fdopen(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            beside.replace(path)
        except OSError:
            beside.unlink(missing_ok=True)
            raise

    def _get(self, ref: BlobRef) -> bytes:
        if not _DIGEST.fullmatch(ref.sha256):
            raise BlobMissingError("not a sha256")
        path = self._path(ref.sha256)
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            raise BlobMissingError(f"no blob {ref.sha256[:12]} in {self._folder}") from None
        if _ref(content).sha256 != ref.sha256:
            path.unlink(missing_ok=True)  # so that the next put of this content repairs it
            raise BlobMissingError(f"blob {ref.sha256[:12]} in {self._folder} is damaged")
        return content

    def _files(self) -> Iterator[Path]:
        with suppress(OSError):
            yield from self._folder.glob("*/*")

    def _expire(self, file: Path, older_than_s: float) -> bool:
        """Moves the file aside before the last look at its age: a put may refresh it at any moment."""
        aside = file.with_name(f".{secrets.token_hex(8)}")
        try:
            if not _is_older(file, older_than_s):
                return False
            file.rename(aside)
            if not _is_older(aside, older_than_s):
                aside.rename(file)
                return False
            aside.unlink()
        except FileNotFoundError:
            return False  # another sweep was faster
        except OSError as error:
            log.warning("blob_not_swept", file=file.name, exc_info=error)
            return False
        return True


def _is_older(file: Path, seconds: float) -> bool:
    """By the file system's clock and ours: the one place where hours matter and the log's time cannot be asked."""
    return time.time() - file.stat().st_mtime > seconds


class _Cache:
    """The most recently used blobs, up to a number of bytes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._held = 0
        self._blobs: OrderedDict[str, bytes] = OrderedDict()

    def get(self, digest: str) -> bytes | None:
        content = self._blobs.get(digest)
        if content is not None:
            self._blobs.move_to_end(digest)
        return content

    def add(self, digest: str, content: bytes) -> None:
        if digest in self._blobs or len(content) > self._capacity:
            return
        self._blobs[digest] = content
        self._held += len(content)
        while self._held > self._capacity:
            self._held -= len(self._blobs.popitem(last=False)[1])
