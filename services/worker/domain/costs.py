"""What one attempt costs."""

from schemas.tasks import Price
from schemas.usage import TokenUsage

MS_PER_HOUR = 3_600_000


def cost_usd(price: Price, usage: TokenUsage, service_ms: float, slots: int) -> float:
    """Tokens + call + the attempt's share of its replica's time: one of `slots` slots for `service_ms`."""
    tokens = usage.input_tokens * price.input_per_mtok_usd + usage.output_tokens * price.output_per_mtok_usd
    replica = price.replica_hour_usd * service_ms / MS_PER_HOUR / slots
    return tokens / 1e6 + price.call_usd + replica
