"""What a person sees of text that comes in pieces: who speaks, what begins anew, and what is missing."""

from itertools import count

from headway.cli.transcript import Transcript
from schemas.text import TextPiece


def piece(text: str, sequence: int, attempt: int = 1, step: str = "phrase") -> TextPiece:
    return TextPiece(run_id="r", step=step, attempt=attempt, sequence=sequence, text=text)


def shown(*pieces: TextPiece) -> str:
    transcript = Transcript()
    return "".join(transcript.add(one) for one in pieces)


def test_pieces_that_follow_each_other_are_one_text() -> None:
    assert shown(*(piece(text, n) for n, text in zip(count(), ("When the", " def", " is run."), strict=False))) == (
        "When the def is run."
    )


def test_another_attempt_begins_anew_and_the_one_before_is_heard_no_more() -> None:
    told = shown(piece("When", 0), piece("Whe", 0, attempt=2), piece(" lost", 1), piece("ther", 1, attempt=2))
    assert told == "When\n— phrase begins anew, attempt 2 —\nWhether"


def test_the_same_attempt_on_another_worker_begins_anew() -> None:
    assert shown(piece("When", 0), piece("Whe", 0)) == "When\n— phrase begins anew, attempt 1 —\nWhe"


def test_who_comes_late_knows_which_attempt_it_is_and_that_something_was_missed() -> None:
    assert shown(piece("then", 3, attempt=2)) == "— phrase begins anew, attempt 2 —\n … then"


def test_a_gap_is_shown() -> None:
    assert shown(piece("When", 0), piece("run", 2), piece(".", 3)) == "When … run."


def test_steps_that_speak_in_turn_are_named() -> None:
    told = shown(piece("One", 0), piece("Two", 0, step="judge"), piece(" more", 1))
    assert told == "One\n— judge —\nTwo\n— phrase —\n more"


def test_text_from_outside_is_harmless_and_not_cut() -> None:
    assert shown(piece("\x1b[2Jhi\n", 0)) == "\\x1b[2Jhi\n"
    assert shown(piece("x" * 5_000, 0)) == "x" * 5_000
