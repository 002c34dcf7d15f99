"""What was published shows as lag, a stalled consumer's grows with the clock, and what is not seen is not told."""

import pytest

from schemas.base import Priority
from schemas.models import Scaling
from schemas.topics import AGGREGATOR_GROUP, EVENTS, ORCHESTRATOR_REQUESTS_GROUP
from services.autoscaler.collector import FRESH_S, Collector, Sample
from services.autoscaler.domain.backlog import UNKNOWN, Behind
from services.autoscaler.domain.watched import Watched
from services.chassis.clock import LogClock
from services.chassis.kafka.connection import PATIENCE_S
from services.chassis.kafka.types import KafkaError, TopicPartition
from tests.unit.autoscaler.lagging import Lagging, bundle

NONE_LEFT = Behind(0, 0.0)


@pytest.fixture
def lagging() -> Lagging:
    return Lagging()


def lane(lagging: Lagging, priority: Priority = Priority.INTERACTIVE) -> Behind:
    return lagging.collector.fresh().lanes(lagging.queue)[priority]


async def test_so_many_published_tasks_show_as_so_many(lagging: Lagging) -> None:
    await lagging.look_for(1)
    lagging.publish(0, 4)
    lagging.publish(3, 2)
    lagging.publish(9)
    await lagging.look_for(1)
    assert lagging.collector.fresh().lanes(lagging.queue) == {
        Priority.INTERACTIVE: Behind(6, 0.8),
        Priority.STANDARD: NONE_LEFT,
        Priority.BATCH: Behind(1, 0.5),
    }


async def test_a_commit_takes_away_what_is_done_and_the_next_is_the_oldest(lagging: Lagging) -> None:
    await lagging.look_for(1)
    lagging.publish(0)
    await lagging.look_for(10)
    lagging.publish(0)
    await lagging.look_for(1)
    lagging.commit(0, 1)
    await lagging.look_for(1)
    assert lane(lagging) == Behind(1, 1.5)
    lagging.commit(0, 2)
    await lagging.look_for(1)
    assert lane(lagging) == NONE_LEFT


async def test_the_lag_of_a_stalled_consumer_grows_with_the_clock(lagging: Lagging) -> None:
    lagging.commit(0, 0)
    await lagging.look_for(1)
    lagging.publish(0)
    ages = []
    for _ in range(4):
        await lagging.look_for(100)
        lagging.publish(0)
        ages.append(lane(lagging).seconds)
    assert ages == [99.5, 199.5, 299.5, 399.5]
    assert lagging.broker.stamps_read == 0, "what was seen coming is not read"


async def test_what_was_there_before_is_as_old_as_its_record_says(lagging: Lagging) -> None:
    lagging.publish(0)
    lagging.now_s += 3_600
    await lagging.look_for(1)
    assert lane(lagging) == Behind(1, 3_601.0)
    await lagging.look_for(60)
    assert lane(lagging) == Behind(1, 3_661.0)
    assert lagging.broker.stamps_read == 1


async def test_what_came_while_nobody_looked_is_read_once_it_is_the_oldest(lagging: Lagging) -> None:
    await lagging.look_for(1)
    lagging.now_s += 10
    lagging.publish(0)
    lagging.now_s += 20
    lagging.publish(0)
    lagging.now_s += 30
    await lagging.look_for(1)
    assert (lane(lagging), lagging.broker.stamps_read) == (Behind(2, 51.0), 1)
    lagging.commit(0, 1)
    await lagging.look_for(1)
    assert (lane(lagging), lagging.broker.stamps_read) == (Behind(1, 32.0), 2)


async def test_without_the_logs_time_only_tasks_are_told(lagging: Lagging) -> None:
    lagging.publish(0)
    collector = Collector(lagging.broker, LogClock(), lambda: lagging.now_s)
    collector.watch(Watched.of(bundle("llm")))
    assert (await collector.sample()).lanes(lagging.queue)[Priority.INTERACTIVE] == Behind(1, None)


async def test_a_group_that_never_committed_has_everything_before_it(lagging: Lagging) -> None:
    lagging.publish(5, 4)
    await lagging.look_for(1)
    assert lane(lagging, Priority.STANDARD).tasks == 4


async def test_a_commit_beyond_the_end_is_not_a_lag_of_zero(lagging: Lagging) -> None:
    lagging.publish(0, 3)
    lagging.commit(0, 5)
    await lagging.look_for(1)
    assert lane(lagging) == UNKNOWN


async def test_a_lag_that_cannot_be_read_is_absent_and_others_are_not(lagging: Lagging) -> None:
    lagging.broker.silent.add(TopicPartition("inference-tasks-llm", 0))
    lagging.publish(9)
    await lagging.look_for(1)
    assert lane(lagging) == UNKNOWN
    assert lane(lagging, Priority.BATCH).tasks == 1


async def test_what_is_old_is_told_no_more(lagging: Lagging) -> None:
    await lagging.look_for(1)
    lagging.now_s += FRESH_S
    assert lane(lagging) == NONE_LEFT
    lagging.now_s += 0.1
    assert lagging.collector.fresh() == Sample()
    assert lagging.collector.why_not_ready() == "the lag cannot be read"
    await lagging.look_for(1)
    assert lagging.collector.why_not_ready() is None


@pytest.mark.parametrize(("cooldown_s", "forgotten_s"), [(2, 5), (20, 20), (300, 60)])
async def test_what_arrived_is_a_rate_for_a_minute_or_for_a_shorter_cooldown(
    lagging: Lagging, cooldown_s: int, forgotten_s: int
) -> None:
    configured = bundle("llm")
    llm = configured.model_classes["llm"].model_copy(update={"scaling": Scaling(cooldown=cooldown_s * 1_000)})
    watched = Watched.of(configured.model_copy(update={"model_classes": {"llm": llm}}))
    lagging.collector.watch(watched)
    await lagging.look_for(10)
    lagging.publish(0)
    rates = []
    for _ in range(forgotten_s + 2):
        await lagging.look_for(1)
        rates.append(lagging.collector.fresh().seen(watched.queues[0])[Priority.INTERACTIVE].arrivals_per_s)
    assert None not in rates
    assert all(rates[: forgotten_s - 1])
    assert rates[-1] == 0


async def test_a_class_that_is_configured_later_is_looked_at(lagging: Lagging) -> None:
    await lagging.look_for(1)
    lagging.kafka.create_topic("inference-tasks-new", 10)
    lagging.publish(8, 3, topic="inference-tasks-new")
    lagging.collector.watch(Watched.of(bundle("llm", "new")))
    await lagging.look_for(1)
    sample = lagging.collector.fresh()
    assert {queue.label: sample.lanes(queue)[Priority.BATCH].tasks for queue in sample.watched.queues} == {
        "llm": 0,
        "new": 3,
    }
    lagging.collector.watch(Watched.of(bundle("new")))
    await lagging.look_for(1)
    assert "headway-worker-llm" not in lagging.collector.fresh().groups


async def test_a_class_whose_topic_is_not_there_yet_is_unknown(lagging: Lagging) -> None:
    watched = Watched.of(bundle("llm", "new"))
    lagging.collector.watch(watched)
    await lagging.look_for(1)
    assert set(lagging.collector.fresh().lanes(watched.queues[1]).values()) == {UNKNOWN}


async def test_a_lane_whose_new_partition_is_not_there_yet_is_unknown_until_it_is(lagging: Lagging) -> None:
    grown = bundle("llm").model_copy(deep=True)
    lanes = grown.model_classes["llm"].lanes.model_copy(update={"batch": (8, 9, 10)})
    watched = Watched((lagging.queue.model_copy(update={"lanes": lanes}),))
    lagging.collector.watch(watched)
    await lagging.look_for(1)
    assert lagging.collector.fresh().lanes(watched.queues[0])[Priority.BATCH] == UNKNOWN
    lagging.kafka.create_topic("inference-tasks-llm", 11)
    lagging.publish(10)
    await lagging.look_for(1)
    assert lagging.collector.fresh().lanes(watched.queues[0])[Priority.BATCH].tasks == 1


async def test_a_service_is_as_old_as_its_oldest_uncommitted_record(lagging: Lagging) -> None:
    await lagging.look_for(1)
    lagging.publish(1, topic=EVENTS)
    await lagging.look_for(8)
    assert lagging.collector.fresh().watermark_ages_s() == {"orchestrator": 0.0, "aggregator": 7.5, "worker": 0.0}
    lagging.commit(1, 1, AGGREGATOR_GROUP, EVENTS)
    lagging.broker.silent.add(TopicPartition("inference-tasks-llm", 0))
    await lagging.look_for(1)
    assert lagging.collector.fresh().watermark_ages_s() == {"orchestrator": 0.0, "aggregator": 0.0}


async def test_a_tenants_own_requests_are_the_orchestrators(lagging: Lagging) -> None:
    lagging.kafka.create_topic("inference-requests-acme", 2)
    lagging.collector.watch(Watched.of(bundle("llm", ingress=("inference-requests-acme",))))
    await lagging.look_for(1)
    lagging.publish(1, topic="inference-requests-acme")
    await lagging.look_for(3)
    sample = lagging.collector.fresh()
    assert TopicPartition("inference-requests-acme", 1) in sample.groups[ORCHESTRATOR_REQUESTS_GROUP]
    assert sample.watermark_ages_s()["orchestrator"] == 2.5


async def test_a_broker_that_is_away_is_waited_for(lagging: Lagging) -> None:
    away_at, back_at = 5.0, 5.0 + PATIENCE_S

    def told(now_s: float) -> bool:
        lagging.broker.away = away_at <= now_s < back_at
        return now_s > back_at + 5

    seen = await lagging.run_until(told)
    assert [at for at, known in seen if not known] == [at for at, _ in seen if away_at + FRESH_S <= at <= back_at]
    assert seen[-1] == (back_at + 6, True)


async def test_without_a_broker_it_ends_when_its_patience_does(lagging: Lagging) -> None:
    lagging.broker.away = True
    with pytest.raises(KafkaError, match="no lag could be read for 25 s"):
        await lagging.run_until(lambda now_s: now_s > 10 * PATIENCE_S)
    assert lagging.now_s == PATIENCE_S + 1
