"""The closed list of error codes, and the error a response carries."""

from enum import StrEnum

from pydantic import Field

from schemas.base import Contract


class ErrorCode(StrEnum):
    """Why a request was refused or a step failed. Closed: clients may switch on it."""

    INVALID_REQUEST = "invalid_request"
    UNKNOWN_PIPELINE = "unknown_pipeline"
    INVALID_INPUT = "invalid_input"
    UNAUTHENTICATED = "unauthenticated"
    FORBIDDEN = "forbidden"
    QUOTA_EXCEEDED = "quota_exceeded"
    OVERLOADED = "overloaded"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    CANCELLED = "cancelled"
    BLOCKED = "blocked"
    INVALID_OUTPUT = "invalid_output"
    REQUEST_TOO_OLD = "request_too_old"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    ENGINE_FAILED = "engine_failed"
    CONTENT_TOO_LARGE = "content_too_large"
    INTERNAL = "internal"


class DeadLetterReason(StrEnum):
    """Why a record stands in a dead-letter topic: header ``x-error-class``."""

    UNDECODABLE = "undecodable"
    INVALID = "invalid"
    UNAUTHENTICATED = "unauthenticated"
    IDEMPOTENCY_CONFLICT = "idempotency_conflict"
    REQUEST_TOO_OLD = "request_too_old"
    POISON = "poison"


class ErrorDetail(Contract):
    """What went wrong, for people and programs."""

    code: ErrorCode = Field(description="One of the closed list.")
    message: str = Field(description="One line that names the field and the fix; never prompts or outputs.")
    step: str | None = Field(default=None, description="The step it happened in.")
    retryable: bool = Field(default=False, description="Whether the same request may succeed later.")
    retry_after_ms: int | None = Field(default=None, ge=0, description="When to try again.")
