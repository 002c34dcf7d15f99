"""Redis keys and channels, in one place. Redis holds no truth: each of these may vanish at any moment."""

DEAD_RUN_TTL_S = 3_600
"""How long a run stays marked as over: as long as its id is remembered."""

DEAD_RUNS_CHANNEL = "dead-runs"
"""Runs that are over, as they end. A message is one or more run ids separated by spaces, so that one publish tells
of a whole batch. Only a run that ended with steps still open need be told: the others have nothing to stop."""


def dead_run_key(run_id: str) -> str:
    """Exists (DEAD_RUN_TTL_S) once a run is over: its queued tasks are dropped, its running ones stopped."""
    return f"dead:{run_id}"


def claim_key(run_id: str, step: str) -> str:
    """Who runs a step: `<attempt> <owner>` under a lease; `<attempt> done` until the step's deadline has passed."""
    return f"claim:{run_id}/{step}"
