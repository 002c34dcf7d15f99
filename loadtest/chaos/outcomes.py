"""Whether a response is right: against what its request asks for, and what faults there were."""

import re
from dataclasses import dataclass

from loadtest.chaos.answers import right_answers
from loadtest.chaos.case import Case, Request, Response
from schemas.base import Json
from schemas.errors import ErrorCode

DISK_FAULTS = ("break-blobs", "fill-disk")
DISK_AFTERMATH_MS = 1_000
DELAYING_FAULTS = frozenset(
    f"{how}-{whom}"
    for how in ("kill", "stop", "freeze", "skew", "storm")
    for whom in ("orchestrator", "aggregator", "worker", "host", "broker")
)
"""Two seconds for a step, and two for its fallback, are less than a failover takes."""
DELAY_AFTERMATH_MS = 20_000
DISK_CODES = (ErrorCode.INTERNAL, ErrorCode.INVALID_OUTPUT)
NONCE = re.compile(r"nonce-\d+-\d+-")


@dataclass(frozen=True, slots=True)
class Misfit:
    """How a response is wrong."""

    kind: str
    """`wrong_joins`, `torn_joins` or `wrong_outcomes`."""
    why: str


def misfit(case: Case, request: Request, response: Response) -> Misfit | None:
    """None for an outcome that the request may have."""
    if foreign := _foreign(request, response.fields):
        return Misfit("wrong_joins", f"holds {foreign}, which is another request's")
    answers = right_answers(request.pipeline, request.body["input"])
    status, output, code = response.status, response.fields.get("output"), response.code
    missing = tuple(response.fields.get("missing", ()))
    if any((a.status, a.output, a.code, a.missing) == (status, output, code, missing) for a in answers):
        return None
    if any(answer.status == status and answer.output is not None for answer in answers):
        return Misfit("torn_joins", f"{status}, but its output is not what its steps make: {str(output)[:200]}")
    if _may_be(case, request, response):
        return None
    wanted = " or ".join(sorted({answer.status for answer in answers}))
    return Misfit("wrong_outcomes", f"{status} ({code}) instead of {wanted}: {response.fields.get('error')}")


def _may_be(case: Case, request: Request, response: Response) -> bool:
    """Outcomes that something other than the request accounts for."""
    if response.status == "expired":
        return request.accepted_at_ms is not None and response.decided_at_ms >= request.deadline_at_ms
    if response.status == "cancelled":
        return str(response.fields.get("run_id")) in case.cancels
    if response.status != "failed" or request.accepted_at_ms is None:
        return False
    from_ms, to_ms = request.accepted_at_ms, response.place.at_ms
    if request.pipeline == "large" and response.code in DISK_CODES:
        return case.struck(DISK_FAULTS, from_ms, to_ms, DISK_AFTERMATH_MS)
    if request.pipeline == "bounded" and response.code == ErrorCode.DEADLINE_EXCEEDED:
        return case.struck(DELAYING_FAULTS, from_ms, to_ms, DELAY_AFTERMATH_MS)
    return False


def _foreign(request: Request, fields: Json) -> str | None:
    """A nonce that is not the request's own, anywhere in what it was answered."""
    own = request.nonce
    for value in (fields.get("output"), fields.get("labels")):
        for nonce in NONCE.findall(str(value)):
            if nonce != own:
                return str(nonce)
    return None
