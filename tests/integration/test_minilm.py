import numpy as np
import pytest

from headway import minilm
from headway.minilm import BATCH_TOKENS, DIMENSIONS, MAX_TOKENS, MiniLM

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def model() -> MiniLM:
    return MiniLM()


def test_rows_are_unit_vectors_in_the_order_of_the_texts(model: MiniLM) -> None:
    texts = ["a much longer text about the prices of large pizzas on Fridays", "kitten", "cat"]
    vectors = model.encode(texts)
    assert vectors.shape == (3, DIMENSIONS)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    assert vectors[1] @ vectors[2] > vectors[0] @ vectors[2]


def test_a_text_has_the_same_vector_alone_and_in_company(model: MiniLM) -> None:
    """Up to the rounding of int8: activations are scaled by the largest of the batch."""
    company = ["What does yield do?", *("word " * count for count in range(1, 60))]
    assert model.encode(company)[0] @ model.encode(company[:1])[0] > 0.99


def test_nothing_has_no_vectors(model: MiniLM) -> None:
    assert model.encode([]).shape == (0, DIMENSIONS)


@pytest.mark.parametrize("text", ["", " ", "\0", "🙂" * 500, "a" * 100_000])
def test_any_text_has_a_vector(model: MiniLM, text: str) -> None:
    assert np.isfinite(model.encode([text])).all()


def test_a_long_text_is_cut(model: MiniLM) -> None:
    assert len(model.tokenize(["word " * 10_000])[0]) == MAX_TOKENS


def test_batches_hold_every_text_once_and_no_more_tokens_than_a_run_may_have() -> None:
    lengths = [7, 256, 3, 100, 256, 12] * 20
    batches = list(minilm._batches(lengths))
    assert sorted(row for batch in batches for row in batch) == list(range(len(lengths)))
    assert all(len(batch) * max(lengths[row] for row in batch) <= BATCH_TOKENS for batch in batches)
