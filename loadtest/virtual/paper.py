"""The system that this one is compared with: its load times, how often its components are called, what it reached."""

from loadtest.virtual.model import Model

EMBEDDING_LOAD_S, LLM_LOAD_S, CLASSIFIER_LOAD_S = 30.0, 150.0, 20.0
"""Published."""
FUNCTION_LOAD_S = 2.0
"""Of what has no model: not published, assumed."""
SHARES = {"embedding": 1.0, "retrieval": 0.7, "code": 0.25}
"""Published: how many of the requests call a component."""
CASCADE = {"sequential_s": 180.0, "prewarmed_s": 65.0}
"""Published: seconds to the answer of a request that finds everything cold."""

CLASSIFIER = Model("classifier", CLASSIFIER_LOAD_S, 0.05, usd_per_hour=0.3)
EMBEDDING = Model("embedding", EMBEDDING_LOAD_S, 0.05, usd_per_hour=0.5)
RETRIEVAL = Model("retrieval", FUNCTION_LOAD_S, 0.05, usd_per_hour=0.1)
CODE = Model("code", FUNCTION_LOAD_S, 0.5, usd_per_hour=0.1)
LLM = Model("llm", LLM_LOAD_S, 1.0, usd_per_hour=2.0)
"""Times of a call and prices are not published: assumed, in proportions that are usual."""
