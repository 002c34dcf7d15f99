"""`evolve` gives what the standard library's `replace` gives, for every class of the fold's state."""

from dataclasses import FrozenInstanceError, replace

import pytest

from schemas.base import Output, RunStatus, StepStatus
from services.aggregator.domain.evolve import evolve
from services.aggregator.domain.state import Outcome, Partition, StepState


def test_what_changes_is_new_and_the_rest_is_kept() -> None:
    state = StepState(attempt=2, output=Output(value=1), charged=frozenset({1}))
    failed = evolve(state, status=StepStatus.FAILED, output=None)
    assert failed == replace(state, status=StepStatus.FAILED, output=None)
    assert failed.charged is state.charged
    assert (state.status, state.output) == (StepStatus.PENDING, Output(value=1))


def test_the_classes_have_no_field_that_is_no_argument() -> None:
    for value in (StepState(), Outcome(RunStatus.FAILED, 1, 2), Partition.empty(1)):
        assert evolve(value) == replace(value)
        assert evolve(value) is not value


def test_the_new_version_is_as_frozen_as_the_old_one() -> None:
    with pytest.raises(FrozenInstanceError):
        evolve(StepState(), attempt=1).attempt = 2  # type: ignore[misc]
