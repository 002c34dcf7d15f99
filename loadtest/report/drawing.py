"""Figures as SVG that stands in a page and takes its colours and letters from it, by day and by night."""

import itertools
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SERIES = tuple(f"#fa00{number:02x}" for number in range(1, 9))
"""Colours that nobody sees: each becomes the page's variable of that number, `--s1` to `--s8`."""
BAD, INK, GRID = "#fb0001", "#fb0002", "#fb0003"
VARIABLES = {f"--s{number}": colour for number, colour in enumerate(SERIES, 1)} | {
    "--bad": BAD,
    "--ink-2": INK,
    "--grid": GRID,
}
WIDTH_IN, HEIGHT_IN = 6.4, 3.0
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # letters stay letters: they are found, and are the page's own
    "text.parse_math": False,  # a name may hold a $
    "font.size": 9.0,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "axes.xmargin": 0.01,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "xtick.color": GRID,
    "xtick.labelcolor": INK,
    "ytick.color": GRID,
    "ytick.labelcolor": INK,
    "ytick.major.size": 0,
    "ytick.minor.size": 0,
    "xtick.minor.size": 0,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
}
ALONE = """<style>
svg {
  background: #ffffff; --ink-2: #5b6472; --grid: #dde1e7; --bad: #dc2626;
  --s1: #2563eb; --s2: #ea580c; --s3: #0d9467; --s4: #7c3aed;
  --s5: #db2777; --s6: #b7860b; --s7: #0891b2; --s8: #64748b;
}
@media (prefers-color-scheme: dark) {
  svg {
    background: #171b22; --ink-2: #9aa4b2; --grid: #2b323d; --bad: #f87171;
    --s1: #6ea8fe; --s2: #fb9a57; --s3: #3fcf9a; --s4: #b59cff;
    --s5: #f585bb; --s6: #f2c94c; --s7: #45cfe6; --s8: #9fb0c6;
  }
}
</style>"""
"""The colours that the page gives a drawing, for one without a page."""
_salts = itertools.count()


@contextmanager
def figure(height_in: float = HEIGHT_IN, columns: int = 1, rows: int = 1) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure to draw in, with so many fields side by side and below; `svg` must be called before it is left."""
    with mpl.rc_context(STYLE | {"svg.hashsalt": f"headway-{next(_salts)}"}):  # ids are the page's: none twice
        made = Figure(figsize=(WIDTH_IN, height_in), layout="constrained")
        made.patch.set_visible(False)
        fields = list(made.subplots(rows, columns, squeeze=False).flat)
        for axes in fields:
            axes.patch.set_visible(False)
        yield made, fields


def svg(drawn: Figure) -> str:
    """The element, with the page's variables for colours, as wide as its place."""
    text = StringIO()
    drawn.savefig(text, format="svg", metadata={"Date": None})
    element = text.getvalue().partition("<svg")[2]
    element = re.sub(r"\s*<metadata>.*?</metadata>", "", element, flags=re.DOTALL)
    element = re.sub(r' (width|height)="[\d.]+pt"', "", element, count=2)
    referred = set(re.findall(r"#([\w.]+)", element))
    element = re.sub(r' id="([^"]+)"', lambda found: found[0] if found[1] in referred else "", element)
    for variable, colour in VARIABLES.items():
        element = element.replace(colour, f"var({variable})")
    return f'<svg role="img"{element}'


def standing_alone(element: str) -> str:
    """A file of its own."""
    head, _, rest = element.partition(">")
    return f"{head}>{ALONE}{rest}"
