"""Whatever a record is, it has a dead letter that fits, and whatever fits is kept to the last byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.errors import DeadLetterReason
from schemas.topics import MAX_DEAD_LETTER_BYTES
from services.chassis.kafka.dead_letters import dead_letter
from services.chassis.kafka.records import fits
from services.chassis.kafka.types import Outgoing, Record

pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")
"""A failure is to be told as what it is, whatever the size of the record."""

REPLACED = {"authorization", "x-cut-from"}
small = st.binary(max_size=40)
sized = st.builds(
    lambda text, size: (text or b"x") * (size // len(text or b"x")),
    small,
    st.sampled_from([0, 1, 1_000, MAX_DEAD_LETTER_BYTES - 900, MAX_DEAD_LETTER_BYTES, 2 * MAX_DEAD_LETTER_BYTES]),
)
names = st.one_of(
    st.text(max_size=20), st.sampled_from(["authorization", "X-Error-Msg", "x-orig-topic", "x-cut-from", "tenant"])
)
records = st.builds(
    Record,
    st.sampled_from(["inference-requests", "inference-tasks-llm", "inference-events"]),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**63 - 1),
    st.one_of(st.none(), small, sized),
    st.one_of(st.none(), small, sized),
    st.lists(st.tuples(names, st.one_of(small, small, sized)), max_size=5).map(tuple),
)
reasons = st.sampled_from(DeadLetterReason)
task_ids = st.one_of(st.none(), st.text(max_size=300))
attempts = st.one_of(st.none(), st.integers(1, 10**9))


def explained(letter: Outgoing) -> dict[str, bytes]:
    return dict(letter.headers[::-1])


@given(records, reasons, st.text(max_size=2_000), task_ids, attempts)
def test_it_always_fits_and_says_where_it_came_from_and_why(
    record: Record, reason: DeadLetterReason, message: str, task_id: str | None, attempt: int | None
) -> None:
    letter = dead_letter(record, reason, message, task_id=task_id, attempt=attempt)
    assert fits(letter)
    assert letter.topic == f"{record.topic}-dlq"
    found = explained(letter)
    assert found["x-error-class"].decode() == reason
    where = (found["x-orig-topic"].decode(), int(found["x-orig-partition"]), int(found["x-orig-offset"]))
    assert where == (record.topic, record.partition, record.offset)
    assert not {name for name, _ in letter.headers if name.lower() == "authorization"}


@given(records, reasons, st.text(max_size=2_000))
def test_what_is_not_cut_is_kept_to_the_last_byte(record: Record, reason: DeadLetterReason, message: str) -> None:
    letter = dead_letter(record, reason, message)
    if "x-cut-from" in explained(letter):
        whole = record.value or b""
        assert int(explained(letter)["x-cut-from"]) == len(whole)
        assert whole.startswith(letter.value or b"")
        assert len(whole) + len(record.key or b"") + sum(len(v) for _, v in record.headers) > 1_000_000
        return
    assert (letter.key, letter.value) == (record.key, record.value)
    ours = {name for name, _ in dead_letter(Record("t", 0, 0, 0, None, None), reason, "").headers}
    kept = [pair for pair in record.headers if pair[0].lower() not in ours | REPLACED]
    assert list(letter.headers[: len(kept)]) == kept


@given(records, reasons)
def test_the_dead_letter_of_a_dead_letter_has_one_of_each_header(record: Record, reason: DeadLetterReason) -> None:
    """A letter may be sent back, and die again."""
    first = dead_letter(record, reason, "first")
    again = Record(record.topic, 0, 1, 2, first.key, first.value, first.headers)
    names = [name for name, _ in dead_letter(again, reason, "again").headers if name.startswith(("x-orig", "x-err"))]
    assert len(names) == len(set(names))
