from schemas.redis_keys import EndedRun, claim_key, decode_ended_runs, encode_ended_runs


def test_ended_runs_travel_many_in_a_message() -> None:
    runs = [EndedRun("r1", 1_700_000_000_000), EndedRun("r2", 0)]
    assert encode_ended_runs(runs) == "r1@1700000000000 r2@0"
    assert decode_ended_runs(encode_ended_runs(runs)) == runs


def test_what_names_no_end_is_passed_over() -> None:
    assert decode_ended_runs("r1 r2@ @5 r3@x r4@-1 r5@\u0662 r6@7") == [EndedRun("r6", 7)]
    assert decode_ended_runs("") == []


def test_claims_of_two_lives_of_a_run_id_differ() -> None:
    assert claim_key("r1", "loop@2", 1_000) != claim_key("r1", "loop@2", 2_000)
