"""What a fork server imports in its tests: a terminal's Ctrl-C comes while it does."""

import signal
from collections.abc import Sequence

for number in (signal.SIGINT, signal.SIGTERM):
    signal.raise_signal(number)


def main(arguments: Sequence[str]) -> int:
    return int(arguments[-1])
