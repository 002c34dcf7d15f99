"""Task ids: every id that is accepted is the id of its parts."""

from hypothesis import given
from hypothesis import strategies as st

from schemas import ids

run_ids = st.uuids().map(str)
steps = st.text(
    st.characters(blacklist_characters="#\x7f", blacklist_categories=("Cc", "Cs")), min_size=1, max_size=256
)


@given(run_ids, steps, st.integers(1, 999_999_999))
def test_a_task_id_is_read_back_as_it_was_made(run_id: str, step: str, attempt: int) -> None:
    assert ids.parse_task_id(ids.task_id(run_id, step, attempt)) == (run_id, step, attempt)


@given(st.one_of(st.text(), st.builds("{}/{}#{}".format, run_ids, st.text(max_size=9), st.text("0123456789+-_ ٣"))))
def test_what_is_accepted_is_written_the_same_way_again(text: str) -> None:
    try:
        parsed = ids.parse_task_id(text)
    except ValueError:
        return
    assert ids.task_id(*parsed) == text
    assert parsed.attempt >= 1


@given(st.tuples(run_ids, steps, st.integers(1, 999_999_999)), st.tuples(run_ids, steps, st.integers(1, 999_999_999)))
def test_two_tasks_never_share_an_id(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    assert (ids.task_id(*one) == ids.task_id(*other)) == (one == other)
