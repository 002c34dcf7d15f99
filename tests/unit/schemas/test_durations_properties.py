"""Durations and sizes: what people write is what is meant, and nothing else is guessed at."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from schemas.durations import Bytes, Duration, parse_bytes, parse_duration_ms

MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
SIZES = {"": 1, "KiB": 1024, "MiB": 1024**2, "GiB": 1024**3}
numbers = st.tuples(
    st.integers(0, 10**9 - 1), st.one_of(st.none(), st.text("0123456789", min_size=1, max_size=6))
).map(lambda parts: f"{parts[0]}" if parts[1] is None else f"{parts[0]}.{parts[1]}")


def close(found: int, number: str, unit: int) -> bool:
    """Rounded to a whole; floats leave the last of fifteen digits open."""
    exact = Fraction(number) * unit
    return abs(found - exact) <= Fraction(1, 2) + exact / 10**15


@given(numbers, st.sampled_from(sorted(MS)))
def test_a_duration_is_its_number_times_its_unit(number: str, unit: str) -> None:
    assert close(parse_duration_ms(f"{number}{unit}"), number, MS[unit])


@given(numbers, st.sampled_from(sorted(SIZES)))
def test_a_size_is_its_number_times_its_unit(number: str, unit: str) -> None:
    assert close(parse_bytes(f"{number}{unit}"), number, SIZES[unit])


@given(st.integers(1, 10**9 - 1), st.sampled_from(sorted(MS)))
def test_what_was_parsed_means_the_same_when_it_is_read_again(number: int, unit: str) -> None:
    """Milliseconds in our own JSON, a number and a unit in YAML."""
    written = TypeAdapter(Duration).validate_python(f"{number}{unit}")
    assert TypeAdapter(Duration).validate_json(TypeAdapter(Duration).dump_json(written)) == written


anything = st.one_of(
    st.none(), st.booleans(), st.floats(), st.text(), st.binary(), st.lists(st.integers()), st.integers(max_value=0)
)


ADAPTERS: list[TypeAdapter[int]] = [TypeAdapter(Duration), TypeAdapter(Bytes)]


@pytest.mark.parametrize("kind", ADAPTERS, ids=["duration", "size"])
@given(value=anything)
def test_anything_else_is_an_error_or_a_positive_number(kind: TypeAdapter[int], value: object) -> None:
    try:
        found = kind.validate_python(value)
    except ValidationError:
        return
    assert type(found) is int
    assert found > 0
    assert isinstance(value, str | float)
