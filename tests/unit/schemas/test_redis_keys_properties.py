"""What travels through Redis is read as it was written, and rubbish beside it is passed over."""

from hypothesis import given
from hypothesis import strategies as st

from schemas.redis_keys import EndedRun, claim_key, dead_run_key, decode_ended_runs, encode_ended_runs

run_ids = st.uuids().map(str)
runs = st.lists(st.builds(EndedRun, run_ids, st.integers(0, 2**63 - 1)))


@given(runs)
def test_ended_runs_are_read_as_they_were_written(ended: list[EndedRun]) -> None:
    assert decode_ended_runs(encode_ended_runs(ended)) == ended


@given(st.text())
def test_any_text_is_read_as_some_runs_or_none(text: str) -> None:
    for run in decode_ended_runs(text):
        assert run.run_id
        assert run[1] >= 0


@given(runs, st.lists(st.text("abc@ -x", max_size=6), min_size=1))
def test_rubbish_between_them_costs_none(ended: list[EndedRun], rubbish: list[str]) -> None:
    words = [encode_ended_runs([run]) for run in ended]
    message = " ".join(word for pair in zip(words, rubbish * len(words), strict=False) for word in pair)
    found = decode_ended_runs(message)
    assert [run for run in found if run in set(ended)] == ended


claims = st.tuples(run_ids, st.from_regex(r"[a-z]{1,9}(\[[0-9]{1,3}\]|@[0-9]{1,3})?", fullmatch=True), st.integers(0))


@given(claims, claims)
def test_keys_of_different_things_differ(one: tuple[str, str, int], other: tuple[str, str, int]) -> None:
    assert (claim_key(*one) == claim_key(*other)) == (one == other)
    assert (dead_run_key(one[0]) == dead_run_key(other[0])) == (one[0] == other[0])
    assert dead_run_key(one[0]) != claim_key(*other)
