"""The work that every system is given: two parallel steps of 5 ms, then one of 50 ms, with a text of 256 bytes."""

QUICK_S = 0.005
SLOW_S = 0.050
IDEAL_MS = 55.0
TEXT = "x" * 256
ANSWER = {"left": {"text": TEXT}, "right": {"text": TEXT}}
"""A quick step answers with its input, and the slow one with both of theirs."""
