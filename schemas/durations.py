"""Durations and sizes as people write them in YAML: `2ms`, `30s`, `5m`, `1h`; `400MiB`."""

import re
from typing import Annotated

from pydantic import BeforeValidator, Field

_UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_UNIT_BYTES = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def parse_duration_ms(text: object) -> int:
    """`"1.5s"` → 1500. A bare number is refused: its unit would be a guess."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,6})?)(ms|s|m|h|d)", text) if isinstance(text, str) else None
    if match is None:
        raise ValueError(f"not a duration: {text!r}; write a number and a unit, like 200ms, 30s, 5m, 1h")
    return round(float(match[1]) * _UNIT_MS[match[2]])


def parse_bytes(text: object) -> int:
    """`"400MiB"` → 419430400; a bare integer is bytes."""
    match = re.fullmatch(r"(\d{1,15}(?:\.\d{1,6})?)(|KiB|MiB|GiB)", str(text))
    if match is None or isinstance(text, bool):
        raise ValueError(f"not a size: {text!r}; write a number and a unit, like 400MiB or 2GiB")
    return round(float(match[1]) * _UNIT_BYTES[match[2]])


def _from_yaml(text: object) -> int:
    """Numbers pass: they come from our own JSON, where the unit is in the contract."""
    return text if isinstance(text, int) and not isinstance(text, bool) else parse_duration_ms(text)


Duration = Annotated[
    int, BeforeValidator(_from_yaml), Field(gt=0, description="In YAML `30s`; in JSON milliseconds.")
]
Bytes = Annotated[int, BeforeValidator(parse_bytes), Field(gt=0, description="In YAML `400MiB`; in JSON bytes.")]
