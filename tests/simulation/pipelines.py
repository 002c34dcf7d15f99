"""What the pipelines in `plane/` make of their steps, said once more by hand: the checks compute with this."""

from collections.abc import Mapping, Sequence

EMBEDS: Mapping[str, Mapping[str, str | Sequence[str]]] = {
    "chain": {"b": "a", "c": "b"},
    "diamond": {"b": "a", "c": "a", "d": ("b", "c")},
    "guarded": {"b": "a", "c": "a", "v": "b"},
}
"""Which steps' outputs each step's own output holds, under `of`."""

OUTPUTS: Mapping[str, Sequence[str]] = {
    "chain": ("a", "c"),
    "diamond": ("b", "c", "d"),
    "guarded": ("b", "c", "v"),
}
"""Which steps' outputs the response holds, under the steps' names."""
