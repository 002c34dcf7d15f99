"""Ids are the same wherever they are computed, and different for different things."""

from uuid import UUID, uuid5

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import ids

RUN = ids.run_id("acme", "order-17")


def test_ids_never_change() -> None:
    # Written down: a change would give old requests new ids, and every effect would happen twice.
    assert RUN == "f3013b37-7b3b-5b34-aefe-c9fad0058902"
    assert ids.response_id(RUN) == "4ecb8cb2-aa0f-5aa9-b5c0-7d359642388a"
    assert ids.usage_id(RUN) == "27280d0f-1b10-59d7-9363-88a8dab39daf"
    request_id = ids.default_request_id("inference-requests", 3, 41, 1_700_000_000_000)
    assert request_id == "548f6159-f233-5ea7-a1a3-6b31865b89f3"


@given(st.uuids(), st.text())
def test_an_id_is_the_librarys_uuid5(namespace: UUID, name: str) -> None:
    assert ids._uuid5(namespace.bytes, name) == str(uuid5(namespace, name))


@given(st.text(max_size=8), st.text(max_size=8), st.text(max_size=8), st.text(max_size=8))
def test_ids_of_two_tenants_never_meet(tenant: str, request: str, other_tenant: str, other_request: str) -> None:
    same = (tenant, request) == (other_tenant, other_request)
    assert (ids.run_id(tenant, request) == ids.run_id(other_tenant, other_request)) is same


def test_the_effects_of_one_run_have_ids_of_their_own() -> None:
    assert len({RUN, ids.response_id(RUN), ids.usage_id(RUN)}) == 3


def test_a_topic_that_was_recreated_gives_its_requests_new_ids() -> None:
    assert ids.default_request_id("t", 0, 0, 1) != ids.default_request_id("t", 0, 0, 2)


@given(st.from_regex(r"[a-z]{1,9}(\[[0-9]{1,3}\]|@[0-9]{1,3})?", fullmatch=True), st.integers(1, 999))
def test_a_task_id_is_read_back_as_it_was_made(step: str, attempt: int) -> None:
    assert ids.parse_task_id(ids.task_id(RUN, step, attempt)) == (RUN, step, attempt)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        f"{RUN}/answer",
        f"{RUN}/answer#0",
        f"{RUN}/answer#1#2",
        f"{RUN}/#1",
        f"{RUN}/a\nb#1",
        f"{RUN}/a#1\n",
        f"{RUN.upper()}/a#1",
        f"{RUN}/{'a' * 300}#1",
        f"{RUN}/a#{'9' * 10}",
    ],
)
def test_what_is_no_task_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a task id"):
        ids.parse_task_id(text)
