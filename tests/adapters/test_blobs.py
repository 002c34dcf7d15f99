"""One contract for every blob store, and what a folder promises beyond it."""

import asyncio
import errno
import os
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from schemas.base import BlobRef, Output
from services.chassis import blobs
from services.chassis.blobs import (
    INLINE_BYTES,
    BlobMissingError,
    BlobStore,
    BlobUnavailableError,
    FolderBlobStore,
    InMemoryBlobStore,
    Outputs,
)

NOWHERE = BlobRef(sha256="0" * 64, size_bytes=1)


@pytest.fixture
async def folder_store(tmp_path: Path) -> AsyncIterator[FolderBlobStore]:
    store = FolderBlobStore(tmp_path / "blobs", cache_bytes=0)
    yield store
    store.close()


@pytest.fixture(params=["memory", "folder", "folder with cache"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[BlobStore]:
    if request.param == "memory":
        yield InMemoryBlobStore()
        return
    folder = FolderBlobStore(tmp_path / "blobs", cache_bytes=0 if request.param == "folder" else 1 << 20)
    yield folder
    folder.close()


class TestContract:
    @pytest.mark.parametrize("content", [b"", b"x", b"\x00\xff" * 600_000], ids=["empty", "small", "large"])
    async def test_what_was_put_is_what_is_got(self, store: BlobStore, content: bytes) -> None:
        ref = await store.put(content)
        assert await store.get(ref) == content
        assert await store.get(ref) == content

    async def test_a_blob_is_named_by_its_content(self, store: BlobStore) -> None:
        assert await store.put(b"hello") == BlobRef(
            sha256="2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824", size_bytes=5
        )

    async def test_the_same_content_twice_is_one_blob(self, store: BlobStore) -> None:
        assert await store.put(b"x") == await store.put(b"x")

    async def test_puts_of_the_same_content_at_once_all_succeed(self, store: BlobStore) -> None:
        refs = await asyncio.gather(*(store.put(b"x" * 100_000) for _ in range(20)))
        assert len(set(refs)) == 1
        assert len(await store.get(refs[0])) == 100_000

    async def test_a_blob_that_is_not_there_is_missing(self, store: BlobStore) -> None:
        with pytest.raises(BlobMissingError, match="no blob 000000000000"):
            await store.get(NOWHERE)

    @pytest.mark.parametrize("name", ["", "../../etc/passwd", "/etc/passwd", "A" * 64, "0" * 63, "0" * 64 + "\n"])
    async def test_a_name_that_is_no_digest_is_missing(self, store: BlobStore, name: str) -> None:
        with pytest.raises(BlobMissingError):
            await store.get(BlobRef(sha256=name, size_bytes=1))


class TestOutputs:
    @pytest.mark.parametrize("value", [None, 0, "text", [1, 2], {"a": {"b": None}}, "ü" * 9_000, ["x" * 20_000]])
    async def test_a_value_survives_its_travel(self, store: BlobStore, value: Any) -> None:
        outputs = Outputs(store)
        stored = await outputs.store_output(value)
        travelled = Output.model_validate_json(stored.model_dump_json())
        assert await outputs.load_output(travelled) == value

    async def test_only_what_is_large_is_stored(self) -> None:
        memory = InMemoryBlobStore()
        quotes = 2
        inline = await Outputs(memory).store_output("x" * (INLINE_BYTES - quotes))
        assert (inline.ref, memory.blobs) == (None, {})
        stored = await Outputs(memory).store_output("x" * (INLINE_BYTES - quotes + 1))
        assert (stored.value, len(memory.blobs)) == (None, 1)

    @pytest.mark.parametrize("value", [object(), "\ud800", {"a": {1, object()}}])
    async def test_what_is_no_json_is_refused(self, value: Any) -> None:
        with pytest.raises(ValueError, match=r"serialize|utf-8|surrogates"):
            await Outputs(InMemoryBlobStore()).store_output(value)

    async def test_a_lost_blob_is_missing_and_a_store_that_is_away_is_unavailable(self) -> None:
        memory = InMemoryBlobStore()
        stored = await Outputs(memory).store_output("x" * 20_000)
        memory.unavailable = True
        with pytest.raises(BlobUnavailableError):
            await Outputs(memory).load_output(stored)
        memory.unavailable = False
        memory.blobs.clear()
        with pytest.raises(BlobMissingError):
            await Outputs(memory).load_output(stored)


class TestFolder:
    async def test_another_process_finds_what_was_put(self, folder_store: FolderBlobStore, tmp_path: Path) -> None:
        ref = await folder_store.put(b"x")
        other = FolderBlobStore(tmp_path / "blobs")
        assert await other.get(ref) == b"x"
        other.close()

    async def test_a_damaged_blob_is_missing_and_the_next_put_repairs_it(
        self, folder_store: FolderBlobStore, tmp_path: Path
    ) -> None:
        ref = await folder_store.put(b"hello")
        (file,) = files(tmp_path)
        file.write_bytes(b"jello")
        with pytest.raises(BlobMissingError, match="damaged"):
            await folder_store.get(ref)
        await folder_store.put(b"hello")
        assert await folder_store.get(ref) == b"hello"

    async def test_a_reference_with_a_wrong_size_harms_no_blob(self, folder_store: FolderBlobStore) -> None:
        ref = await folder_store.put(b"hello")
        await folder_store.get(BlobRef(sha256=ref.sha256, size_bytes=2))
        assert await folder_store.get(ref) == b"hello"

    @pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
    async def test_a_write_that_fails_is_unavailable_and_leaves_nothing(
        self, folder_store: FolderBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
    ) -> None:
        def fails(_file: int) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", fails)
        with pytest.raises(BlobUnavailableError, match=os.strerror(code)) as caught:
            await folder_store.put(b"x")
        assert ("free some space" in str(caught.value)) is (code != errno.EIO)
        assert files(tmp_path) == []

    async def test_a_folder_that_cannot_be_made_is_unavailable(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("in the way")
        store = FolderBlobStore(tmp_path / "file" / "blobs")
        with pytest.raises(BlobUnavailableError, match="Not a directory"):
            await store.put(b"x")
        store.close()

    async def test_a_volume_that_hangs_is_unavailable_and_does_not_hang_its_caller(
        self, folder_store: FolderBlobStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        released = threading.Event()
        monkeypatch.setattr(blobs, "TIMEOUT_S", 0.05)
        monkeypatch.setattr(os, "utime", lambda _path: released.wait(10))
        waiting = [folder_store.put(b"%d" % n) for n in range(blobs.MAX_WAITING + 10)]
        refused = await asyncio.gather(*waiting, return_exceptions=True)
        released.set()
        assert all(isinstance(answer, BlobUnavailableError) for answer in refused)

    async def test_a_blob_read_again_comes_from_the_cache(self, tmp_path: Path) -> None:
        store = FolderBlobStore(tmp_path, cache_bytes=10)
        first, second, large = [await store.put(content) for content in (b"111111", b"222222", b"x" * 11)]
        for ref in (first, large, second):  # the second pushes the first out; the large one never was in
            await store.get(ref)
        for file in files(tmp_path):
            file.unlink()
        assert await store.get(second) == b"222222"
        for gone in (first, large):
            with pytest.raises(BlobMissingError):
                await store.get(gone)
        store.close()


class TestSweep:
    async def test_what_is_old_goes_and_what_was_put_again_stays(
        self, folder_store: FolderBlobStore, tmp_path: Path
    ) -> None:
        old, kept, again = [await folder_store.put(content) for content in (b"old", b"kept", b"again")]
        age(tmp_path, old.sha256, again.sha256)
        await folder_store.put(b"again")
        assert await folder_store.sweep(3_600) == 1
        assert await folder_store.get(kept) == b"kept"
        assert await folder_store.get(again) == b"again"
        with pytest.raises(BlobMissingError):
            await folder_store.get(old)

    async def test_what_a_crash_left_half_written_goes(self, folder_store: FolderBlobStore, tmp_path: Path) -> None:
        await folder_store.put(b"x")
        (file,) = files(tmp_path)
        file.rename(file.with_name(".half"))
        age(tmp_path, ".half")
        assert await folder_store.sweep(3_600) == 1
        assert files(tmp_path) == []

    async def test_a_put_during_the_sweep_is_not_lost(
        self, folder_store: FolderBlobStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        ref = await folder_store.put(b"x")
        age(tmp_path, ref.sha256)
        looked = blobs._is_older
        looks: list[bool] = []

        def refreshed_after_the_first_look(file: Path, seconds: float) -> bool:
            looks.append(looked(file, seconds))
            if len(looks) == 1:
                os.utime(file)  # as another process's put does
            return looks[-1]

        monkeypatch.setattr(blobs, "_is_older", refreshed_after_the_first_look)
        assert await folder_store.sweep(3_600) == 0
        assert looks == [True, False]
        assert await folder_store.get(ref) == b"x"

    async def test_a_folder_that_is_not_there_yet_is_swept(self, folder_store: FolderBlobStore) -> None:
        assert await folder_store.sweep(3_600) == 0

    async def test_two_sweeps_at_once_do_each_other_no_harm(
        self, folder_store: FolderBlobStore, tmp_path: Path
    ) -> None:
        refs = [await folder_store.put(b"%d" % n) for n in range(50)]
        age(tmp_path, *(ref.sha256 for ref in refs))
        assert sum(await asyncio.gather(folder_store.sweep(3_600), folder_store.sweep(3_600))) == 50
        assert files(tmp_path) == []


def files(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def age(folder: Path, *names: str) -> None:
    """Makes files two hours old."""
    for file in files(folder):
        if file.name in names:
            then = file.stat().st_mtime - 7_200
            os.utime(file, (then, then))


def nested(levels: int) -> Any:
    value: Any = {"leaf": 1}
    for _ in range(levels - 1):
        value = [value]
    return value


async def test_a_value_nested_deeper_than_64_levels_is_not_carried() -> None:
    outputs = Outputs(InMemoryBlobStore())
    assert (await outputs.store_output(nested(64))).value == nested(64)
    with pytest.raises(ValueError, match="deeper than 64 levels"):
        await outputs.store_output(nested(65))
    with pytest.raises(ValueError, match="deeper than 64 levels"):
        await outputs.store_output({"text": "x" * INLINE_BYTES, "deep": nested(65)})


async def test_a_wide_value_is_not_a_deep_one() -> None:
    wide = [[number] for number in range(1_000)]
    assert (await Outputs(InMemoryBlobStore()).store_output(wide)).value == wide


async def test_a_blob_that_holds_no_json_counts_as_missing() -> None:
    memory = InMemoryBlobStore()
    ref = await memory.put(b"[" * 1_000)
    with pytest.raises(BlobMissingError, match="no JSON that can be read"):
        await Outputs(memory).load_output(Output(ref=ref))


async def test_a_small_output_can_be_checked_in_and_a_reference_stays_one() -> None:
    outputs = Outputs(InMemoryBlobStore())
    checked = await outputs.check_in(Output(value={"a": 1}))
    assert checked.ref is not None
    assert await outputs.load_output(checked) == {"a": 1}
    assert await outputs.check_in(checked) is checked
