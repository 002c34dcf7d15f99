"""What each request must be answered, worked out without the plane: engines echo, so the pipelines say it all."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from schemas.base import Json


@dataclass(frozen=True, slots=True)
class Answer:
    """One outcome that is right."""

    status: str
    output: Json = None
    missing: tuple[str, ...] = ()
    code: str | None = None
    """Of the error; None: there is none."""


def right_answers(pipeline: str, given: Mapping[str, Json]) -> list[Answer]:
    """The outcomes a request may have by itself, with no fault but those it asks for."""
    return _BY_PIPELINE[pipeline](given)


def _fan(given: Mapping[str, Json]) -> list[Answer]:
    nonce, n = given["nonce"], given["n"]
    parts = {name: {"step": name, "nonce": nonce, "n": n + more} for name, more in _FAN_PARTS.items()}
    return [Answer("succeeded", {**parts, "total": 4 * n + 10})]


_FAN_PARTS = {"left": 1, "middle": 2, "right": 3, "own": 4}


def _chain(given: Mapping[str, Json]) -> list[Answer]:
    return [Answer("succeeded", {"nonce": given["nonce"], "n": 2 * (given["n"] + 1)})]


def _gated(given: Mapping[str, Json]) -> list[Answer]:
    if not given["pass"]:
        return [Answer("blocked", code="blocked")]
    return [Answer("succeeded", {"nonce": given["nonce"], "side": given["nonce"]})]


def _fallback(given: Mapping[str, Json]) -> list[Answer]:
    return [Answer("succeeded", {"nonce": given["nonce"], "from": "value"})]


def _optional(given: Mapping[str, Json]) -> list[Answer]:
    return [Answer("partial", {"nonce": given["nonce"], "nice": "none"}, missing=("nice",))]


def _retried(given: Mapping[str, Json]) -> list[Answer]:
    """An engine may be out of luck six times, its worker's budget for retries be spent, or its breaker open."""
    return [
        Answer("succeeded", {"nonce": given["nonce"]}),
        Answer("failed", code="engine_failed"),
        Answer("failed", code="engine_unavailable"),
    ]


def _bounded(given: Mapping[str, Json]) -> list[Answer]:
    """Two seconds may pass without any fault of the engine: then the fallback is right as well."""
    by_value = Answer("succeeded", {"nonce": given["nonce"], "from": "value"})
    by_engine = Answer("succeeded", {"nonce": given["nonce"], "from": "engine"})
    return [by_value] if given.get("simulate") else [by_engine, by_value]


def _risky(given: Mapping[str, Json]) -> list[Answer]:
    """Whoever is told nothing meets the breaker that others have opened."""
    refused = Answer("failed", code="engine_unavailable")
    if (given.get("simulate") or {}).get("fail"):
        return [refused]
    return [Answer("succeeded", {"nonce": given["nonce"]}), refused]


def _large(given: Mapping[str, Json]) -> list[Answer]:
    return [Answer("succeeded", {"nonce": given["nonce"], "filler": given["filler"]})]


_BY_PIPELINE: Mapping[str, Callable[[Mapping[str, Json]], list[Answer]]] = {
    "fan": _fan,
    "chain": _chain,
    "gated": _gated,
    "fallback": _fallback,
    "optional": _optional,
    "retried": _retried,
    "bounded": _bounded,
    "large": _large,
    "risky": _risky,
}
