"""A starting plane is a line a change where there is no terminal."""

from pathlib import Path

import pytest

from headway.cli.embedded import _indexing
from headway.cli.progress import StartProgress


def test_a_change_is_one_line_and_a_repeat_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    with StartProgress() as progress:
        for detail in ("downloading", "downloading", "formatting\x1b[2J"):
            progress("kafka", "starting", detail)
        progress("kafka", "ready", "2.8 s")
    progress("host", "restarting", "")
    assert [line.split(maxsplit=1) for line in capsys.readouterr().err.splitlines()] == [
        ["kafka", "starting: downloading"],
        ["kafka", "starting: formatting\\x1b[2J"],
        ["kafka", "ready: 2.8 s"],
        ["host", "restarting"],
    ]


def test_a_worker_that_embeds_its_index_says_how_far_it_is(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "worker-retriever-0.log"
    log.parent.mkdir()
    log.write_text(
        '{"event":"embedded","index":"reference","done":128,"total":1131}\n'
        '{"event":"embedded","index":"reference","done":256,"total":1131}\n{"event":"engine_starting"}\n',
        encoding="utf-8",
    )
    waits = "workers: waiting for retriever-0, llm-0"
    assert list(_indexing(tmp_path, waits)) == [("retriever-0", "256 of 1131")]
