"""`headway demo`, as `make demo` runs it: real models, real questions, a flood, and nothing left behind."""

import asyncio
import re
import sys
from pathlib import Path

import psutil
import pytest

pytestmark = [pytest.mark.plane, pytest.mark.models]

TIMEOUT_S = 400.0


async def test_the_demo_answers_floods_and_ends_well(tmp_path: Path, pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    # Indexes of a clone are built once: other tests use the same.
    (tmp_path / "index").symlink_to(pytestconfig.cache.mkdir("headway-home") / "index")
    (tmp_path / "index").resolve().mkdir(exist_ok=True)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "headway", "demo", "--home", str(tmp_path)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    shown, _ = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
    text = shown.decode()
    assert process.returncode == 0, text
    assert re.search(r"^\d+ runs, each ended as it should, in \d+ s in all\.$", text, re.MULTILINE), text
    assert "evaluated from left to right when the function definition is executed" in text
    assert "blocked: gate 'safe' said no" in text
    assert re.search(r"embedding +batch +[1-9]", text), "the flood was seen in the lag"
    assert not [p.pid for p in psutil.process_iter(["cmdline"]) if str(tmp_path) in " ".join(p.info["cmdline"] or ())]
