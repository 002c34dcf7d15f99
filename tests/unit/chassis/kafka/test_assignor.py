"""The lane assignor: every partition once, every member its share of each lane."""

from collections import Counter

from aiokafka.cluster import ClusterMetadata
from aiokafka.coordinator.assignors.abstract import AbstractPartitionAssignor
from aiokafka.coordinator.protocol import ConsumerProtocolMemberMetadata
from hypothesis import given
from hypothesis import strategies as st

from services.chassis.kafka.assignor import assign, lane_assignor, share, share_range
from services.chassis.kafka.types import TopicPartition

members = st.sets(st.text("abcdef", min_size=1, max_size=4), min_size=1, max_size=7)


@st.composite
def lanes(draw: st.DrawFn) -> list[list[int]]:
    """Up to four disjoint lists of partitions."""
    numbers = draw(st.permutations(range(draw(st.integers(0, 24)))))
    cuts = sorted(draw(st.lists(st.integers(0, len(numbers)), max_size=3)))
    return [list(numbers[low:high]) for low, high in zip([0, *cuts], [*cuts, len(numbers)], strict=True)]


@given(members, lanes())
def test_each_lane_is_shared_evenly_and_every_partition_has_one_owner(
    names: set[str], by_lane: list[list[int]]
) -> None:
    shares = share(names, by_lane)
    assert shares.keys() == names
    owned = [number for numbers in shares.values() for number in numbers]
    assert sorted(owned) == sorted(number for lane in by_lane for number in lane)
    for lane in by_lane:
        counts = [len(set(lane) & set(numbers)) for numbers in shares.values()]
        assert max(counts) - min(counts) <= 1
    totals = [len(numbers) for numbers in shares.values()]
    assert max(totals) - min(totals) <= 1


@given(members, lanes())
def test_a_share_depends_on_who_is_there_and_not_on_the_order(names: set[str], by_lane: list[list[int]]) -> None:
    assert share(sorted(names), by_lane) == share(sorted(names, reverse=True), by_lane)


def test_leftovers_of_the_lanes_go_to_different_members() -> None:
    assert share(["a", "b", "c"], [[0], [1], [2]]) == {"a": [0], "b": [1], "c": [2]}


def test_nobody_gets_nothing() -> None:
    assert share([], [[0, 1]]) == {}
    assert share_range([], [0, 1]) == {}


@given(members, st.sets(st.integers(0, 50)))
def test_a_range_is_cut_into_even_runs(names: set[str], partitions: set[int]) -> None:
    shares = share_range(names, partitions)
    assert [number for name in sorted(names) for number in shares[name]] == sorted(partitions)
    counts = [len(numbers) for numbers in shares.values()]
    assert max(counts) - min(counts) <= 1


topics = st.sampled_from(["embedding", "llm", "tools"])


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=3), st.sets(topics), min_size=1),
    st.dictionaries(topics, st.integers(1, 20)),
    st.dictionaries(topics, lanes()),
)
def test_every_partition_goes_to_one_member_that_subscribes_to_its_topic(
    subscriptions: dict[str, set[str]], counts: dict[str, int], by_topic: dict[str, list[list[int]]]
) -> None:
    assignment = assign(subscriptions, {topic: range(count) for topic, count in counts.items()}, by_topic)
    assert assignment.keys() == subscriptions.keys()
    wanted = set().union(*subscriptions.values())
    owners = Counter(tp for owned in assignment.values() for tp in owned)
    assert owners == {
        TopicPartition(topic, number): 1
        for topic, count in counts.items()
        if topic in wanted
        for number in range(count)
    }
    assert all(tp.topic in subscriptions[member] for member, owned in assignment.items() for tp in owned)


def test_partitions_outside_every_lane_and_lanes_beyond_the_topic_do_no_harm() -> None:
    grown = assign({"a": ["t"], "b": ["t"]}, {"t": range(6)}, {"t": [[0, 1, 9], [1, 2]]})
    assert {member: [tp.partition for tp in owned] for member, owned in grown.items()} == {
        "a": [0, 2, 3, 4],
        "b": [1, 5],
    }


def leader(assignor: type[AbstractPartitionAssignor]) -> dict[str, list[tuple[str, list[int]]]]:
    cluster = ClusterMetadata()
    cluster._partitions["t"] = dict.fromkeys(range(4))
    members = {name: ConsumerProtocolMemberMetadata(0, ["t"], b"") for name in ("a", "b")}
    assignment = assignor.assign(cluster, members)
    return {name: found.assignment for name, found in assignment.items()}


def test_two_consumers_of_one_process_keep_their_own_lanes() -> None:
    first, second = lane_assignor({"t": [[0, 1], [2, 3]]}), lane_assignor({"t": [[0, 2], [1, 3]]})
    assert leader(first) == {"a": [("t", [0, 2])], "b": [("t", [1, 3])]}
    assert leader(second) == {"a": [("t", [0, 1])], "b": [("t", [2, 3])]}


def test_members_speak_of_the_same_protocol_whatever_their_lanes() -> None:
    first, second = lane_assignor({}), lane_assignor({"t": [[0]]})
    assert first.name == second.name
    assert first.metadata({"b", "a"}).encode() == second.metadata({"a", "b"}).encode()
