"""OpenAI's `response_format`, for an engine that has to read it itself."""

from typing import Annotated, Literal

from pydantic import BaseModel, Field

from schemas.base import Json
from services.worker.domain.engine import CallerFault
from services.worker.engines.openai import Chat
from services.worker.engines.outcomes import read_input


class _Schema(BaseModel):
    json_schema: Annotated[dict[str, Json], Field(alias="schema")]


class _Format(BaseModel):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: _Schema | None = None


class _Formatted(BaseModel):
    response_format: _Format = _Format(type="text")


def structure(chat: Chat) -> dict[str, Json]:
    """What the answer is to keep to, in the words of vLLM's StructuredOutputsParams; empty: any text.

    CallerFault names what is wrong with it.
    """
    wanted = read_input(_Formatted, chat.model_dump(include={"response_format"}, exclude_none=True)).response_format
    if wanted.type == "text":
        return {}
    if wanted.type == "json_object":
        return {"json_object": True}
    if wanted.json_schema is None:
        raise CallerFault("input.response_format.json_schema: Field required")
    return {"json": wanted.json_schema.json_schema}
