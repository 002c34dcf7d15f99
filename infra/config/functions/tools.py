"""Small tools of pipelines: does what a language model said stand in the sources?"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from headway.functions import StepContext

NO_ANSWER = "The indexed documents do not answer this question."

_SENTENCE_END = re.compile(r"(?<=[.!?])[\"”’*)]*\s+(?=[\"“‘*(\[]*[A-Z_])")
_WORD = re.compile(r"[a-z0-9_]+")
_SUFFIX = re.compile(r"(?<=\w{3})(?:ing|ed|es|s|e)$")
_FILLER = """
a an and are as at be been being by can do does for has have how i in is it its may of on or so that the their then
there these they this those to was were what when which while who why will with would yes you
"""
_FILLER_WORDS = frozenset(_FILLER.split())
_QUALIFIERS = frozenset(
    ["but", "except", "neither", "never", "no", "none", "nor", "not", "only", "unless", "until", "without"]
)


class Source(BaseModel):
    """A retrieved paragraph."""

    model_config = ConfigDict(frozen=True)

    id: str
    text: str


class Phrasing(BaseModel):
    """What a model said (`text`, empty when it said nothing), and the paragraphs it had, the best first."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    question: str = Field(default="", max_length=8_192)
    text: str = Field(default="", max_length=16_384)
    documents: tuple[Source, ...] = Field(default=(), max_length=100)


class Grounded(BaseModel):
    """`answer` is the phrasing where the sources support it, else `quote`; `source` is the id of its paragraph."""

    model_config = ConfigDict(frozen=True)

    answer: str
    grounded: bool
    quote: str
    source: str | None


class _Sentence(NamedTuple):
    text: str
    source: str
    words: tuple[str, ...]


def grounded(input: Phrasing, ctx: StepContext) -> Grounded:
    """Keep of a phrasing the first sentences that stand, nearly word for word, in one sentence of the sources each.

    Nearly: filler words and endings may differ and words may be left out, but for negations; none may be new or
    moved. A small model's errors are swapped words ("when the function is *called*"), so words found anywhere in the
    sources prove nothing. Where nothing is left, or less of the question than the best sentence of the best paragraph
    has, that sentence is the answer.
    """
    if not input.documents:
        return Grounded(answer=NO_ANSWER, grounded=False, quote="", source=None)
    asked = frozenset(_words(input.question))
    quote = max(_sentences(input.documents[0]), key=lambda sentence: len(asked.intersection(sentence.words)))
    said = _supported(input)
    words = {word for sentence in said for word in sentence.words}
    if words <= asked or len(asked & words) < len(asked.intersection(quote.words)):
        return Grounded(answer=quote.text, grounded=False, quote=quote.text, source=quote.source)
    answer = " ".join(sentence.text for sentence in said)
    return Grounded(answer=answer, grounded=True, quote=quote.text, source=said[0].source)


def _supported(input: Phrasing) -> list[_Sentence]:
    """The first sentences of the phrasing that have a source, up to one that has none."""
    sources = [sentence for document in input.documents for sentence in _sentences(document)]
    supported: list[_Sentence] = []
    for said in _split(_finished(input.text)):
        words = _words(said)
        source = next((s.source for s in sources if words and _supports(s.words, words)), None)
        if source is None:
            break
        supported.append(_Sentence(said, source, words))
    return supported


def _supports(source: Sequence[str], said: Sequence[str]) -> bool:
    """Whether `said` is `source` with words left out, none of which turns the meaning round."""
    rest = iter(source)
    return all(word in rest for word in said) and _qualifiers(said) == _qualifiers(source)


def _qualifiers(words: Sequence[str]) -> list[str]:
    return [word for word in words if word in _QUALIFIERS]


def _sentences(document: Source) -> list[_Sentence]:
    return [_Sentence(text, document.id, _words(text)) for text in _split(document.text)]


def _split(text: str) -> list[str]:
    """The sentences, without marks of strong emphasis: `**` is not part of what is said."""
    return [part.strip() for part in _SENTENCE_END.split(text.replace("**", ""))]


def _finished(text: str) -> str:
    """Without a last sentence that the token limit cut off."""
    return text[: max(text.rfind(mark) for mark in ".!?") + 1]


def _words(text: str) -> tuple[str, ...]:
    """Lower-case stems of the words that carry meaning: negations, numbers and directions among them."""
    words = _WORD.findall(text.lower().replace("n't", " not").replace("cannot", "can not"))
    return tuple(_SUFFIX.sub("", word) for word in words if word not in _FILLER_WORDS)
