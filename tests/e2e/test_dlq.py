"""Dead letters of a real plane: replayed once, under their identity, and dropped."""

from uuid import uuid4

import pytest

from schemas import ids
from tests.e2e.commands import Cli
from tests.e2e.planes import RunningPlane

pytestmark = pytest.mark.plane

DLQ = "inference-requests-dlq"
BODY = b'{"pipeline": "embed", "input": {"texts": ["a"]}}'


@pytest.fixture
def headway(plane: RunningPlane) -> Cli:
    return Cli(plane.home)


async def publish_letter(plane: RunningPlane, offset: int, reason: str, *more: tuple[str, bytes]) -> str:
    """A letter as a service leaves it, of the record that stood at 3/`offset`; where it stands."""
    mark = uuid4().hex.encode()
    headers = [
        ("x-error-class", reason.encode()),
        ("x-error-msg", b"why"),
        ("x-orig-topic", b"inference-requests"),
        ("x-orig-partition", b"3"),
        ("x-orig-offset", b"%d" % offset),
        ("x-first-ts", b"1700000000000"),
        ("mark", mark),
        *more,
    ]
    await plane.publish(BODY, headers=headers, topic=DLQ)
    found = await plane.read(DLQ, lambda records: any(("mark", mark) in record.headers for record in records))
    (letter,) = [record for record in found if ("mark", mark) in record.headers]
    return f"{DLQ}/{letter.partition}/{letter.offset}"


async def test_a_request_is_replayed_once_under_the_id_it_had(headway: Cli, plane: RunningPlane) -> None:
    request_id = ids.default_request_id("inference-requests", 3, 41, 1_700_000_000_000)
    at = await publish_letter(plane, 41, "request_too_old", ("correlation-id", b"c1"))
    planned = await headway("dlq", "replay", DLQ, "--id", request_id, "--dry-run", "--json")
    assert (planned.code, [row["at"] for row in planned.json]) == (0, [at])
    unasked = await headway("dlq", "replay", at)
    assert (unasked.code, unasked.err.splitlines()[-1]) == (
        2,
        "headway: there is nobody to ask: say --yes, or --dry-run to see what would be done",
    )
    replayed = await headway("dlq", "replay", at, "--yes", "--json")
    assert replayed.code == 0
    assert replayed.json[0]["to"].startswith("inference-requests/3/")
    response = (await plane.responses(request_id))[request_id]
    assert response["status"] == "succeeded"
    again = await headway("dlq", "replay", DLQ, "--id", request_id, "--yes")
    assert (again.code, again.out) == (0, "")
    assert again.err.splitlines() == ["passed over, since they were replayed before: 1", "nothing to replay"]
    origin = ("x-replayed-from", at.encode())
    requests = await plane.read(
        "inference-requests", lambda records: any(origin in record.headers for record in records)
    )
    asked = [record for record in requests if origin in record.headers]
    assert [(record.value, record.key) for record in asked] == [(BODY, None)]
    assert dict(asked[0].headers)["correlation-id"] == b"c1"
    assert not any(name.startswith(("x-error", "x-orig")) for name, _ in asked[0].headers)
    letters = (await headway("dlq", "list", DLQ, "--limit", "1000", "--json")).json
    assert [letter["replayed"] for letter in letters if letter["at"] == at] == [True]
    assert "unknown" not in {row["reason"] for row in (await headway("dlq", "list", "--json")).json}


async def test_what_must_not_be_replayed_is_refused_with_its_reason(headway: Cli, plane: RunningPlane) -> None:
    at = await publish_letter(plane, 42, "idempotency_conflict")
    refused = await headway("dlq", "replay", at, "--yes", "--json")
    assert refused.code == 1
    assert "new request_id" in refused.json[0]["refused"]
    cut = await publish_letter(plane, 43, "request_too_old", ("x-cut-from", b"3000000"))
    assert (await headway("dlq", "replay", cut, "--yes", "--json")).json[0]["refused"] == (
        "the letter was cut: the original had 3000000 bytes"
    )


async def test_a_letter_is_dropped_with_all_before_it_and_none_after(headway: Cli, plane: RunningPlane) -> None:
    first = await publish_letter(plane, 44, "invalid")
    topic, partition, offset = first.split("/")
    after = first
    while after.split("/")[1] != partition or after == first:
        after = await publish_letter(plane, 45, "invalid")
    planned = (await headway("dlq", "drop", first, "--dry-run", "--json")).json
    assert (planned[0]["partition"], planned[0]["before"]) == (int(partition), int(offset) + 1)
    assert planned[0]["letters"] >= planned[0]["not_replayed"] >= 1
    dropped = await headway("dlq", "drop", first, "--yes", "--json")
    assert (dropped.code, dropped.json) == (0, planned)
    listed = [letter["at"] for letter in (await headway("dlq", "list", topic, "--limit", "1000", "--json")).json]
    assert first not in listed
    assert after in listed
    assert (await headway("dlq", "drop", first, "--yes")).code == 7


async def test_only_dead_letters_are_dropped(headway: Cli) -> None:
    for what in ("inference-events", "inference-events/0/0"):
        done = await headway("dlq", "drop", what, "--yes")
        assert (done.code, done.err) == (
            7,
            "headway: inference-events is no dead-letter topic here: see `headway dlq list`\n",
        )


async def test_options_that_mean_nothing_are_named(headway: Cli) -> None:
    for option, value in (("--reason", "nope"), ("--since", "yesterday"), ("--until", "x")):
        done = await headway("dlq", "replay", DLQ, option, value, "--dry-run")
        assert (done.code, done.err.startswith(f"headway: {option}: ")) == (2, True)
