"""The command line, run against a plane."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TIMEOUT_S = 60.0


@dataclass(frozen=True)
class Done:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed; fails with its complaint when that is no JSON."""
        assert self.out, self.err
        return json.loads(self.out)


class Cli:
    """Runs `headway` for one plane."""

    def __init__(self, home: Path) -> None:
        self._environment = os.environ | {"HEADWAY_HOME": str(home)}

    async def __call__(self, *arguments: str) -> Done:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "headway", *arguments),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=self._environment,
        )
        out, err = await asyncio.wait_for(process.communicate(), TIMEOUT_S)
        assert process.returncode is not None
        assert b"Traceback" not in err
        return Done(process.returncode, out.decode(), err.decode())

    async def submit(self, pipeline: str, value: dict[str, Any], *more: str) -> Done:
        return await self("submit", pipeline, "--input", json.dumps(value), *more)
