"""The `headway` command."""

import sys


def main() -> None:
    """The console script: runs a command and exits with its code. Never shows a traceback."""
    from headway.cli.app import run

    sys.exit(run(sys.argv[1:]))
