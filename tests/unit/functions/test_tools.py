import pytest
from tools import NO_ANSWER, Grounded, Phrasing, Source, grounded

from headway.functions import StepContext

QUESTION = "When are default parameter values evaluated?"
DEFAULTS = Source(
    id="function-1",
    text="Functions may have defaults. **Default parameter values are evaluated from left to right when the function"
    " definition is executed.** This means that the expression is evaluated once, when the function is defined.",
)
CALLS = Source(id="calls-1", text="A call always returns some value, possibly None, unless it raises an exception.")
QUOTE = "Default parameter values are evaluated from left to right when the function definition is executed."


def ground(text: str, question: str = QUESTION, *documents: Source) -> Grounded:
    ctx = StepContext("run", "ground", 1, "default", None, 10.0)
    return grounded(Phrasing(question=question, text=text, documents=documents or (DEFAULTS, CALLS)), ctx)


def test_a_phrasing_in_the_words_of_a_source_is_the_answer() -> None:
    made = ground(
        "The default parameter values are evaluated from left to right when a function definition is executed."
    )
    assert (made.grounded, made.source) == (True, "function-1")
    assert made.answer.startswith("The default parameter values")
    assert made.quote == QUOTE


@pytest.mark.parametrize(
    "phrasing",
    [
        "Default parameter values are evaluated from left to right when the function is called.",
        "Default parameter values are evaluated from right to left when the function definition is executed.",
        "Default parameter values are not evaluated from left to right when the function definition is executed.",
        "Default parameter values are evaluated 3 times from left to right when the function definition is executed.",
        "Default parameter values are evaluated at run time.",
        "A call always returns some value, unless it raises None.",
        "When are default parameter values evaluated?",
        "",
        "   \n",
        "Yes.",
    ],
)
def test_a_phrasing_that_the_sources_do_not_support_gives_way_to_the_quote(phrasing: str) -> None:
    assert ground(phrasing) == Grounded(answer=QUOTE, grounded=False, quote=QUOTE, source="function-1")


def test_a_phrasing_that_leaves_out_a_negation_is_not_supported() -> None:
    source = Source(id="f-1", text="The function definition does not execute the function body.")
    assert not ground("The function definition does execute the function body.", "What is executed?", source).grounded
    assert ground("The definition does not execute the function body.", "What is executed?", source).grounded


def test_what_follows_the_first_unsupported_sentence_is_dropped() -> None:
    made = ground(f"{QUOTE} This is a feature of many languages. {CALLS.text}")
    assert (made.answer, made.grounded) == (QUOTE, True)


def test_a_sentence_cut_off_by_the_token_limit_is_dropped() -> None:
    assert ground(f"{QUOTE} This means that the expression").answer == QUOTE


def test_a_true_sentence_about_something_else_is_no_answer() -> None:
    assert ground(CALLS.text).answer == QUOTE


def test_without_paragraphs_the_answer_is_that_there_is_none() -> None:
    ctx = StepContext("run", "ground", 1, "default", None, 10.0)
    made = grounded(Phrasing(question=QUESTION, text="It is Paris.", documents=()), ctx)
    assert made == Grounded(answer=NO_ANSWER, grounded=False, quote="", source=None)


def test_without_a_question_the_quote_is_the_first_sentence() -> None:
    assert ground("", "").answer == "Functions may have defaults."
