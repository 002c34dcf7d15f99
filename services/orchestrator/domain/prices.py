"""What one task more will cost on a backend, before its engine has counted anything. Pure."""

from pydantic_core import to_json

from schemas.base import Output
from schemas.tasks import Price

BYTES_PER_TOKEN = 4
"""Of English: https://help.openai.com/en/articles/4936856."""
USUAL_OUTPUT_TOKENS = 256
"""Assumed where the input has no `max_tokens`."""


def expected_usd(price: Price, value: Output) -> float:
    """A replica is paid by the hour, whoever uses it. Tokens are guessed alike for all backends: it is to compare."""
    if not (price.input_per_mtok_usd or price.output_per_mtok_usd):
        return price.call_usd
    tokens_usd = _input_tokens(value) * price.input_per_mtok_usd + _output_tokens(value) * price.output_per_mtok_usd
    return price.call_usd + tokens_usd / 1e6


def _input_tokens(value: Output) -> float:
    size_bytes = value.ref.size_bytes if value.ref is not None else len(to_json(value.value))
    return size_bytes / BYTES_PER_TOKEN


def _output_tokens(value: Output) -> float:
    most = value.value.get("max_tokens") if isinstance(value.value, dict) else None
    return most if isinstance(most, int | float) and most >= 0 else USUAL_OUTPUT_TOKENS
