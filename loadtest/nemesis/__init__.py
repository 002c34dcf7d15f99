"""Faults: made on a running plane on purpose, healed again, each with evidence that it bit. Linux only."""
