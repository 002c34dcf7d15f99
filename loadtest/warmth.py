"""A plane that has just begun is slower: the broker's code is not compiled yet, and no connection has been used."""

from dataclasses import replace

from loadtest.generator import Load

WARM_UP_S = 5.0


def warmed(load: Load) -> Load:
    """The same load, made for five seconds at least before it counts."""
    return replace(load, warm_up_s=max(load.warm_up_s, WARM_UP_S))
