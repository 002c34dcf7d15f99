"""`python -m tests.simulation`: runs seeds, and says which of them shows that a promise does not hold."""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from multiprocessing import get_context
from time import monotonic

from tests.simulation.bugs import BUGS
from tests.simulation.seeds import Outcome, first_caught, run_seed

SHOWN = 3
BUG_SEEDS = 300
"""Within so many seeds every bug has to be found."""


def main(arguments: Sequence[str] | None = None) -> int:
    """0 when every promise held, and with `--bugs` when every bug was caught; else 1."""
    given = _parser().parse_args(arguments)
    seeds = range(given.first, given.first + given.seeds)
    return _hunt(seeds) if given.bugs else _search(seeds, given.bug, given.jobs)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seeds", type=int, default=BUG_SEEDS, help="how many")
    parser.add_argument("--from", type=int, default=1, dest="first", metavar="N", help="the first one")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--bug", choices=sorted(BUGS), help="with this bug in the services")
    parser.add_argument("--bugs", action="store_true", help="which seed is the first to show each bug")
    return parser


def _search(seeds: Sequence[int], bug: str | None, jobs: int) -> int:
    began = monotonic()
    befell: Counter[str] = Counter()
    failed = 0
    for outcome in _outcomes(seeds, bug, jobs):
        befell += outcome.befell
        if outcome.found:
            failed += 1
            _show(outcome, bug)
    _say(f"{len(seeds)} seeds in {monotonic() - began:.0f} s: {failed} with violations")
    _say("faults: " + ", ".join(f"{kind} {count}" for kind, count in sorted(befell.items())))
    return 1 if failed else 0


def _outcomes(seeds: Sequence[int], bug: str | None, jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from map(partial(run_seed, bug=bug), seeds)
        return
    with get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap_unordered(partial(run_seed, bug=bug), seeds, chunksize=10)


def _show(outcome: Outcome, bug: str | None) -> None:
    again = f"python -m tests.simulation --from {outcome.seed} --seeds 1" + (f" --bug {bug}" if bug else "")
    _say(f"seed {outcome.seed}: {len(outcome.found)} violations; again: {again}")
    for violation in outcome.found[:SHOWN]:
        _say(f"  {violation.kind}: {violation.what}")


def _hunt(seeds: Sequence[int]) -> int:
    missed = 0
    for bug in BUGS:
        outcome = first_caught(bug, seeds)
        missed += outcome is None
        kinds = sorted({violation.kind for violation in outcome.found}) if outcome else ()
        _say(f"{bug}: " + (f"seed {outcome.seed} ({', '.join(kinds)})" if outcome else "NOT CAUGHT"))
    return 1 if missed else 0


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
