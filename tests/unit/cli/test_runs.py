"""What the name of a run may mean."""

from uuid import uuid4

from headway.cli.runs import future_run_ids
from schemas import ids


def test_a_request_that_is_still_to_come_is_meant_by_its_id() -> None:
    for name in ("my-request", str(uuid4())):
        assert future_run_ids(name, "acme") == (ids.run_id("acme", name),)


def test_what_looks_like_a_run_may_be_one() -> None:
    run_id = ids.run_id("acme", "my-request")
    assert future_run_ids(run_id, "acme") == (run_id, ids.run_id("acme", run_id))
