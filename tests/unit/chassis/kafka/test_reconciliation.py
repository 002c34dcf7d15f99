"""What a topic needs, and what is refused: by the rules, without a broker."""

from dataclasses import replace

import pytest

from schemas.topics import (
    CONFIG,
    FLEET,
    IDEMPOTENCY_WINDOW_MS,
    LOOP_TOPICS,
    Topic,
    all_topics,
    dead_letter_topic,
)
from services.chassis.kafka.reconciliation import TopicError, TopicState, plan, plan_offsets

LETTERS = Topic("letters", "bytes", "any", partitions=2)
UNSIZED = replace(LETTERS, partitions=None)
DAY_MS, HOUR_MS = 86_400_000, 3_600_000
OFFSETS = {"min.insync.replicas": "1", "unclean.leader.election.enable": "false", "cleanup.policy": "compact"}


def state(replication: int = 3, insync: str = "2") -> TopicState:
    settings = {**LETTERS.settings, "min.insync.replicas": insync}
    return TopicState(2, replication, settings, frozenset(settings))


@pytest.mark.parametrize("topic", list(all_topics({}, {})), ids=lambda topic: topic.name)
def test_every_topic_keeps_its_records_as_long_as_they_may_be_needed(topic: Topic) -> None:
    settings = topic.settings
    assert settings["unclean.leader.election.enable"] == "false"
    assert settings["retention.bytes"] == "-1"
    if topic.name in (CONFIG, FLEET):
        return
    assert settings["message.timestamp.type"] == "LogAppendTime"
    assert settings["cleanup.policy"] == "delete"
    longest_deadline_ms = HOUR_MS
    assert int(settings["retention.ms"]) >= max(DAY_MS, 2 * longest_deadline_ms, 2 * IDEMPOTENCY_WINDOW_MS)


def test_the_configuration_is_compacted_and_the_fleet_is_not() -> None:
    topics = {topic.name: topic for topic in LOOP_TOPICS}
    assert (topics[CONFIG].partitions, topics[CONFIG].settings["cleanup.policy"]) == (1, "compact")
    assert "retention.ms" not in topics[CONFIG].settings
    assert (topics[FLEET].partitions, topics[FLEET].settings["retention.ms"]) == (1, str(HOUR_MS))
    assert topics[FLEET].settings["cleanup.policy"] == "delete"


def test_a_dead_letter_topic_takes_twice_what_its_topic_does() -> None:
    assert int(dead_letter_topic(LETTERS).settings["max.message.bytes"]) > 2 << 20


@pytest.mark.parametrize(("replication_factor", "insync"), [(1, None), (2, None), (3, "2"), (5, "2")])
def test_in_production_two_brokers_acknowledge(replication_factor: int, insync: str | None) -> None:
    planned = plan(LETTERS, None, replication_factor)
    assert planned.create
    assert planned.settings.get("min.insync.replicas") == insync


def test_a_topic_that_one_broker_acknowledges_is_put_right_in_production() -> None:
    assert plan(LETTERS, state(insync="1"), 3).wrong == {"min.insync.replicas": "2"}
    assert plan(LETTERS, state(), 3).changes() == []


def test_copies_are_not_added_behind_an_operators_back() -> None:
    with pytest.raises(TopicError, match="letters has replication 1, 3 is asked for: add copies"):
        plan(LETTERS, state(replication=1), 3)
    assert plan(LETTERS, state(replication=3), 1).changes() == []


@pytest.mark.parametrize("partitions", [1, 3, 24])
def test_a_topic_keyed_by_run_never_changes_its_partitions(partitions: int) -> None:
    with pytest.raises(TopicError, match="keyed by run id"):
        plan(replace(LETTERS, keyed_by_run=True, partitions=partitions), state(), 1)


@pytest.mark.parametrize(("asked", "made"), [(None, 12), (4, 4)])
def test_a_topic_without_a_number_of_its_own_is_given_the_planes(asked: int | None, made: int) -> None:
    assert plan(UNSIZED, None, 1, asked).partitions == made
    assert plan(LETTERS, None, 1, asked).partitions == 2


def test_a_topic_without_a_number_of_its_own_keeps_what_it_has_until_more_are_asked_for() -> None:
    assert plan(UNSIZED, state(), 1).changes() == []
    (change,) = plan(UNSIZED, state(), 1, 5).changes()
    assert (change.action, change.detail) == ("grow", "2 -> 5 partitions")
    with pytest.raises(TopicError, match="has 2 partitions, 5 are asked for: it is keyed by run id"):
        plan(replace(UNSIZED, keyed_by_run=True), state(), 1, 5)


def test_events_and_ready_steps_are_keyed_by_run() -> None:
    assert [topic.name for topic in LOOP_TOPICS if topic.keyed_by_run] == ["inference-events", "inference-joins"]


def test_commits_are_as_safe_as_the_records_they_are_of() -> None:
    found = TopicState(50, 3, OFFSETS, frozenset({"cleanup.policy"}))
    (planned,) = plan_offsets(found, 3, 3)
    assert [(change.topic, change.detail) for change in planned.changes()] == [
        ("__consumer_offsets", "min.insync.replicas: 1 -> 2")
    ]
    assert planned.kept == {"cleanup.policy": "compact"}


def test_commits_with_too_few_copies_are_refused_before_and_after_they_are_there() -> None:
    with pytest.raises(TopicError, match="not there yet, and would be made with replication 1"):
        plan_offsets(None, 1, 3)
    with pytest.raises(TopicError, match="__consumer_offsets has replication 1"):
        plan_offsets(TopicState(50, 1, OFFSETS, frozenset()), 1, 3)
    assert plan_offsets(None, 3, 3) == []
