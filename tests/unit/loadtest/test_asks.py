"""The chaos requests, and what they must be answered."""

import json

from loadtest.chaos.answers import right_answers
from loadtest.chaos.asks import SCRIPTED, SHAPES, contradicting, make
from loadtest.chaos.weather import SCRIPTS, Mood, Weather


def test_a_request_is_the_same_whenever_it_is_made() -> None:
    assert make(7, 3) == make(7, 3)
    assert make(7, 3) != make(8, 3)


def test_every_shape_is_asked_and_every_request_is_one_of_its_own() -> None:
    asks = [make(7, number) for number in range(500)]
    assert {ask.pipeline for ask in asks} == set(SHAPES)
    assert len({ask.request_id for ask in asks}) == len({ask.input["nonce"] for ask in asks}) == 500
    assert all(15_000 <= ask.deadline_ms < 60_000 for ask in asks)


def test_no_nonce_is_the_beginning_of_another() -> None:
    nonces = [str(make(7, number).input["nonce"]) for number in range(120)]
    assert not [(a, b) for a in nonces for b in nonces if a != b and b.startswith(a)]


def test_large_requests_need_a_claim_check() -> None:
    large = [ask for ask in (make(7, number) for number in range(500)) if ask.pipeline == "large"]
    assert large
    assert all(len(json.dumps(ask.input)) > 16_384 for ask in large)


def test_a_contradiction_has_the_id_and_another_input() -> None:
    ask = make(7, 3)
    other = contradicting(ask)
    assert other["request_id"] == ask.request_id
    assert other["input"] != ask.input


def test_moods_that_script_a_request_take_turns() -> None:
    weather = Weather()
    with weather.of(Mood.ENGINE_FAILING) as failing, weather.of(Mood.LARGE) as large:
        make_requests(weather, 4)
        assert (failing, large) == (["0", "2"], ["1", "3"])
    assert weather.moods(0) == []


def test_moods_that_would_not_show_in_a_scripted_request_take_turns_with_scripts() -> None:
    weather = Weather()
    with (
        weather.of(Mood.LARGE) as large,
        weather.of(Mood.ENGINE_FAILING) as failing,
        weather.of(Mood.REPEATED) as repeated,
        weather.of(Mood.CANCELLED_AFTER) as cancelled,
    ):
        make_requests(weather, 4)
    assert repeated == cancelled == ["0", "2"]
    assert (failing, large) == (["1"], ["3"])


def make_requests(weather: Weather, count: int) -> None:
    for number in range(count):
        for mood in weather.moods(number):
            weather.touch(mood, str(number))


def test_an_engine_that_is_told_to_fail_fails_the_run() -> None:
    (answer,) = right_answers("risky", make(7, 1, [Mood.ENGINE_FAILING]).input)
    assert (answer.status, answer.code) == ("failed", "engine_unavailable")


def test_the_answer_of_a_fan_out_has_every_branch() -> None:
    (answer,) = right_answers("fan", {"nonce": "x", "n": 10})
    assert answer.output == {
        "left": {"step": "left", "nonce": "x", "n": 11},
        "middle": {"step": "middle", "nonce": "x", "n": 12},
        "right": {"step": "right", "nonce": "x", "n": 13},
        "own": {"step": "own", "nonce": "x", "n": 14},
        "total": 50,
    }


def test_every_mood_that_scripts_a_request_has_a_script() -> None:
    assert set(SCRIPTED) == set(SCRIPTS)
