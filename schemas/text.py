"""What a step says before its run ends. It travels by Redis, not in the log."""

from pydantic import Field

from schemas.base import Message


class TextPiece(Message):
    """Some text of one attempt of a step, as it came. Best effort: pieces may be lost; the response is the answer.

    It names no tenant, and holds nothing but what the step says.
    """

    run_id: str
    step: str
    attempt: int = Field(ge=1, description="A higher one begins anew.")
    sequence: int = Field(
        ge=0, description="0 begins anew, 1 follows it, and so on. Where a number is missing, so is text."
    )
    text: str
