"""The system that this one is compared with: its load times, how often its components are called, what it reached."""

from typing import NamedTuple

from loadtest.virtual.model import Model


class Published(NamedTuple):
    """A result."""

    value: float
    """The best of it, where it is a range or a bound."""
    told: str


EMBEDDING_LOAD_S, LLM_LOAD_S, CLASSIFIER_LOAD_S = 30.0, 150.0, 20.0
"""Published."""
FUNCTION_LOAD_S = 2.0
"""Of what has no model: not published, assumed."""
SHARES = {"embedding": 1.0, "retrieval": 0.7, "code": 0.25}
"""Published: how many of the requests call a component."""
CASCADE = {"sequential_s": Published(180.0, "180 s"), "prewarmed_s": Published(65.0, "65 s")}
"""Seconds to the answer of a request that finds everything cold."""
TIER = Published(0.7, "70 % for 20 % of the cost")
PREDICTION = Published(0.9, "> 90 %")
"""Of cold starts, how many a warm tier removes, and of those of peak hours prediction."""
HYBRID = Published(0.2, "15–20 %")
"""Of the cost."""
BURST = {"embedding": Published(10.0, "10"), "retrieval": Published(7.0, "6–7"), "code": Published(3.0, "2–3")}
"""Times as many workers, at ten times the traffic."""

CLASSIFIER = Model("classifier", CLASSIFIER_LOAD_S, 0.05, usd_per_hour=0.3)
EMBEDDING = Model("embedding", EMBEDDING_LOAD_S, 0.05, usd_per_hour=0.5)
RETRIEVAL = Model("retrieval", FUNCTION_LOAD_S, 0.05, usd_per_hour=0.1)
CODE = Model("code", FUNCTION_LOAD_S, 0.5, usd_per_hour=0.1)
LLM = Model("llm", LLM_LOAD_S, 1.0, usd_per_hour=2.0)
"""Times of a call and prices are not published: assumed, in proportions that are usual."""
