from pydoc_data.topics import topics

import pytest
from corpus import MIN_CHARS, paragraphs


@pytest.fixture(scope="module")
def texts() -> list[str]:
    return [paragraph.text for paragraph in paragraphs()]


def test_no_paragraph_is_repeated_and_every_id_is_its_own(texts: list[str]) -> None:
    assert len(set(texts)) == len(texts) > 1_000
    assert len({paragraph.id for paragraph in paragraphs()}) == len(texts)


def test_ids_are_stable() -> None:
    assert [paragraph.id for paragraph in paragraphs()] == [paragraph.id for paragraph in paragraphs()]


def test_a_paragraph_is_the_text_of_its_topic_with_white_space_normalised() -> None:
    paragraph = next(p for p in paragraphs() if "evaluated from left to right when the function definition" in p.text)
    topic = " ".join(topics[paragraph.topic].replace("pre-\ncomputed", "pre-computed").split())
    assert paragraph.text in topic


def test_a_signature_is_joined_to_the_paragraph_about_it(texts: list[str]) -> None:
    assert any(text.startswith("str.strip([chars]) Return a copy of the string") for text in texts)


def test_words_broken_at_a_hyphen_are_whole(texts: list[str]) -> None:
    assert any("“pre-computed” value" in text for text in texts)


@pytest.mark.parametrize("mark", ["::=", ">>>", "****", "====", "+---"])
def test_grammars_sessions_headings_and_tables_are_left_out(texts: list[str], mark: str) -> None:
    assert [text for text in texts if mark in text] == []


def test_what_is_short_or_only_points_elsewhere_is_left_out(texts: list[str]) -> None:
    assert min(len(text) for text in texts) >= MIN_CHARS
    assert [text for text in texts if text.startswith("See also")] == []
    assert [text for text in texts if text.endswith("following lexical definitions:")] == []
