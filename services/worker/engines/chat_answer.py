"""A chat completion as OpenAI's protocol sends it: read as it comes, piece by piece."""

from collections.abc import Callable

from pydantic import BaseModel, ValidationError

from schemas.usage import TokenUsage
from services.worker.domain.engine import EngineFailed, Result


class _Lenient(BaseModel):
    """A part of the server's answer: what is not needed may look as it likes."""


class _PromptDetails(_Lenient):
    cached_tokens: int | None = None


class _Usage(_Lenient):
    prompt_tokens: int = 0
    completion_tokens: int = 0
    prompt_tokens_details: _PromptDetails | None = None

    def counted(self) -> TokenUsage:
        cached = self.prompt_tokens_details and self.prompt_tokens_details.cached_tokens
        return TokenUsage(
            input_tokens=self.prompt_tokens, cached_tokens=cached or 0, output_tokens=self.completion_tokens
        )


class _Said(_Lenient):
    content: str | None = None


class _Choice(_Lenient):
    """Of a chunk it has a `delta`, of a whole answer a `message`."""

    delta: _Said | None = None
    message: _Said | None = None
    finish_reason: str | None = None


class _Chunk(_Lenient):
    """A part of an answer, or all of it."""

    choices: list[_Choice]
    usage: _Usage | None = None


class ChatAnswer:
    """The text and usage of a stream of chunks, or of a single object from a server that does not stream."""

    def __init__(self, on_text: Callable[[str], None] | None = None) -> None:
        """`on_text` hears each piece of the text as it comes."""
        self._on_text = on_text
        self._line = b""
        """The last one, which is not whole yet."""
        self._pieces: list[str] = []
        self._finish_reason: str | None = None
        self._usage = TokenUsage()

    def feed(self, data: bytes) -> None:
        """The answer's next bytes, cut wherever. EngineFailed at the first event that is no chunk."""
        *lines, self._line = (self._line + data).split(b"\n")
        for line in lines:
            self._read_line(line)

    def result(self, content: bytes) -> Result:
        """The answer, when all of `content` has been fed; EngineFailed if it is none."""
        if content.lstrip().startswith(b"{"):
            self._read(content)
        else:
            self._read_line(self._line)
        if self._finish_reason is None:
            raise EngineFailed("the answer ended too early")
        return Result({"text": "".join(self._pieces), "finish_reason": self._finish_reason}, self._usage)

    def _read_line(self, line: bytes) -> None:
        if line.startswith(b"data:") and (data := line[5:].strip()) != b"[DONE]":
            self._read(data)

    def _read(self, part: bytes) -> None:
        try:
            chunk = _Chunk.model_validate_json(part)
        except ValidationError as error:
            where = ".".join(map(str, error.errors()[0]["loc"]))
            raise EngineFailed(f"the answer is no chat completion{where and f': {where}'}") from None
        if chunk.usage is not None:
            self._usage = chunk.usage.counted()
        for choice in chunk.choices[:1]:
            said = choice.delta or choice.message or _Said()
            self._say(said.content)
            self._finish_reason = choice.finish_reason or self._finish_reason

    def _say(self, text: str | None) -> None:
        if text:
            self._pieces.append(text)
            if self._on_text is not None:
                self._on_text(text)
