"""What every plot of the page is made of."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

Figures = Mapping[str, Any]
"""The JSON of a scenario."""


@dataclass(frozen=True, slots=True)
class Plot:
    """What a page shows: a heading, the drawing, and what its colours mean, by variable of the page."""

    title: str
    svg: str
    legend: tuple[tuple[str, str], ...] = ()
    note: str = ""


def bars(axes: Axes, names: Sequence[str], values: Sequence[float], colour: str, unit: str) -> None:
    """One beside each name, with its value."""
    drawn = axes.barh(range(len(names)), values, color=colour, height=0.7)
    axes.bar_label(drawn, [f"{value:.3g}" if value < 1_000 else f"{value:.0f}" for value in values], padding=3)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, max(*values, 1e-9) * 1.2)
    axes.grid(visible=False)
    axes.set_xlabel(unit)


def legend(names: Iterable[str]) -> tuple[tuple[str, str], ...]:
    """Each with the colour of its number."""
    return tuple((f"--s{number}", name) for number, name in enumerate(names, 1))


def at(figures: Any, *path: str) -> Any:
    """What is there; None if any of it is not."""
    for name in path:
        figures = figures.get(name) if isinstance(figures, Mapping) else None
    return figures
