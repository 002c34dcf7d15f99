"""The lane assignor as a group uses it: members that come and go, some with two topics, lanes of any shape."""

from aiokafka.cluster import ClusterMetadata
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kafka.assignor import assign, lane_assignor
from services.chassis.kafka.types import TopicPartition

TOPICS = ("embedding", "llm")
Lanes = list[list[int]]


@st.composite
def disjoint_lanes(draw: st.DrawFn, count: int) -> Lanes:
    """Three lanes over the partitions, in no order; some of none."""
    lane_of = draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
    return [[number for number in range(count) if lane_of[number] == lane] for lane in range(3)]


partition_counts = st.fixed_dictionaries({topic: st.integers(1, 16) for topic in TOPICS})
groups = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=2), st.sets(st.sampled_from(TOPICS), min_size=1), min_size=1, max_size=6
)


@given(st.data(), partition_counts, groups)
def test_every_lane_is_spread_evenly_over_those_who_subscribe_to_its_topic(
    data: st.DataObject, counts: dict[str, int], group: dict[str, set[str]]
) -> None:
    lanes = {topic: data.draw(disjoint_lanes(count)) for topic, count in counts.items()}
    owned = assign(group, {topic: range(count) for topic, count in counts.items()}, lanes)
    for topic in TOPICS:
        members = [member for member, topics in group.items() if topic in topics]
        for lane in lanes[topic]:
            spread = [len({TopicPartition(topic, number) for number in lane} & {*owned[m]}) for m in members]
            assert not members or max(spread) - min(spread) <= 1


@given(st.data(), partition_counts, groups)
def test_what_travels_to_the_members_is_what_was_assigned(
    data: st.DataObject, counts: dict[str, int], group: dict[str, set[str]]
) -> None:
    lanes = {topic: data.draw(disjoint_lanes(count)) for topic, count in counts.items()}
    assignor = lane_assignor(lanes)
    cluster = ClusterMetadata()
    cluster._partitions.update({topic: dict.fromkeys(range(count)) for topic, count in counts.items()})
    sent = assignor.assign(cluster, {member: assignor.metadata(topics) for member, topics in group.items()})
    decoded = {
        member: [TopicPartition(topic, number) for topic, numbers in owned.assignment for number in numbers]
        for member, owned in sent.items()
    }
    every = [tp for owned in decoded.values() for tp in owned]
    subscribed = set().union(*group.values())
    assert sorted(every) == [TopicPartition(t, n) for t in sorted(subscribed) for n in range(counts[t])]
    assert all(tp.topic in group[member] for member, owned in decoded.items() for tp in owned)
