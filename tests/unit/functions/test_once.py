import fcntl
import threading
from pathlib import Path

import once
import pytest
from once import made_once


def write(path: Path) -> None:
    path.write_text("made")


def test_what_is_there_is_not_made_again(tmp_path: Path) -> None:
    path = tmp_path / "index" / "file.npy"
    made = [made_once(path, write), made_once(path, lambda part: pytest.fail("made twice"))]
    assert made == [path, path]
    assert path.read_text() == "made"


def test_two_that_start_together_make_it_once(tmp_path: Path) -> None:
    path, makers, both = tmp_path / "file", [], threading.Barrier(2)

    def make(part: Path) -> None:
        makers.append(part)
        write(part)

    def start() -> None:
        both.wait(timeout=10)
        made_once(path, make)

    threads = [threading.Thread(target=start) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=30)
    assert len(makers) == 1
    assert path.read_text() == "made"


def test_a_maker_that_fails_leaves_nothing_that_looks_made(tmp_path: Path) -> None:
    path = tmp_path / "file"

    def fail(part: Path) -> None:
        part.write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        made_once(path, fail)
    assert not path.exists()
    assert made_once(path, write).read_text() == "made"


def test_whoever_waits_too_long_is_told_what_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "LOCK_TIMEOUT_S", 0.0)
    with (tmp_path / "file.lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(TimeoutError, match="was held by another process"):
            made_once(tmp_path / "file", write)
