"""What a starting plane looks like: one row a part on a terminal, one line a change in a pipe."""

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from headway.cli.output import console, line, say

if TYPE_CHECKING:
    from rich.console import RenderableType

STYLES = {"ready": "green", "restarting": "yellow", "not ready": "yellow", "starting": "cyan"}


class StartProgress:
    """Call it with a part, its state and a detail. Within `with` a terminal shows a live table; after it, lines."""

    def __init__(self) -> None:
        self._parts: dict[str, tuple[str, str]] = {}
        self._live: Any = None

    def __enter__(self) -> Self:
        if sys.stderr.isatty():
            from rich.live import Live

            self._live = Live(console=console(stderr=True), get_renderable=self._table, refresh_per_second=8)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, stack: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def __call__(self, part: str, state: str, detail: str) -> None:
        changed = self._parts.get(part) != (state, detail)
        self._parts[part] = (state, detail)
        if self._live is None and changed:
            say(f"{part:<14} {state}" + (f": {line(detail, 2_000)}" if detail else ""))

    def _table(self) -> "RenderableType":
        from rich.spinner import Spinner
        from rich.table import Table
        from rich.text import Text

        rows = Table.grid(padding=(0, 2))
        for part, (state, detail) in self._parts.items():
            mark = Text("✓", style="green") if state == "ready" else Spinner("dots")
            rows.add_row(mark, part, Text(state, style=STYLES.get(state, "")), Text(line(detail, 100), style="dim"))
        return rows
