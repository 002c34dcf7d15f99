"""What runs stays; what is missing finds room; dead hosts count for nothing; no host is promised twice."""

from collections.abc import Mapping, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.models import Resources
from services.autoscaler.domain.hosts import DEAD_AFTER_MS, Host, Need, Room
from services.autoscaler.domain.layout import Layout, Placed, Unplaced, as_running
from services.autoscaler.domain.placement import place

NOW_MS = 1_000_000
GIB = 1 << 30
ROOM = Room(cpu=4, memory=8 * GIB)
GPU = Room(cpu=8, memory=64 * GIB, gpu_memory=48 * GIB)
SMALL, LARGE = Resources(cpu=1, memory=GIB), Resources(cpu=3, memory=4 * GIB)
MODEL = Resources(cpu=1, memory=20 * GIB, gpu=1, gpu_memory=20 * GIB)


def host(name: str, room: Room = ROOM, *, silent_ms: int = 0, **more: object) -> Host:
    return Host(name, room, NOW_MS - silent_ms)._replace(**more)  # type: ignore[arg-type]


def layout(**hosts: Mapping[str, Placed]) -> Layout:
    return Layout(hosts)


def placed(needs: Sequence[Need], hosts: Sequence[Host], before: Layout = Layout()) -> Layout:  # noqa: B008
    return place(needs, hosts, before, NOW_MS)


def test_new_workers_are_spread() -> None:
    found = placed([Need("llm", 3, resources=SMALL)], [host("a"), host("b"), host("c")])
    assert [found.at(name, "llm").warm for name in "abc"] == [1, 1, 1]


def test_of_hosts_that_have_as_few_the_fullest_is_taken() -> None:
    before = layout(a={}, b={"tools": Placed(2)})
    needs = [Need("tools", 2, resources=SMALL), Need("llm", 1, resources=SMALL)]
    assert placed(needs, [host("a"), host("b")], before).at("b", "llm") == Placed(1)


def test_what_runs_stays_where_it_is() -> None:
    before = layout(a={"llm": Placed(3)}, b={})
    assert placed([Need("llm", 3, resources=SMALL)], [host("a"), host("b")], before).hosts == before.hosts


def test_a_worker_goes_from_where_the_fewest_are() -> None:
    before = layout(a={"llm": Placed(2)}, b={"llm": Placed(1)})
    found = placed([Need("llm", 2, resources=SMALL)], [host("a"), host("b")], before)
    assert found.hosts == {"a": {"llm": Placed(2)}, "b": {}}


def test_one_that_is_not_ready_goes_before_one_that_is() -> None:
    hosts = [host("a", running={"llm": 1}, ready={"llm": 1}), host("b", running={"llm": 1})]
    found = placed([Need("llm", 1, resources=SMALL)], hosts, as_running(hosts))
    assert found.hosts == {"a": {"llm": Placed(1)}, "b": {}}


def test_what_finds_no_room_is_told() -> None:
    found = placed([Need("llm", 3, resources=LARGE)], [host("a"), host("b")])
    assert found.total("llm") == Placed(2)
    assert found.unplaced == (Unplaced("llm", 1, 0),)


def test_what_comes_first_is_placed_first() -> None:
    needs = [Need("embedding", 2, resources=LARGE), Need("llm", 2, resources=LARGE)]
    found = placed(needs, [host("a"), host("b")])
    assert (found.total("embedding").warm, found.total("llm").warm) == (2, 0)


def test_a_silent_host_is_dead_and_its_workers_are_started_elsewhere() -> None:
    before = layout(a={"llm": Placed(2)}, b={})
    hosts = [host("a", silent_ms=DEAD_AFTER_MS + 1), host("b")]
    assert placed([Need("llm", 2, resources=SMALL)], hosts, before).hosts == {"b": {"llm": Placed(2)}}


def test_a_host_that_was_silent_for_ten_seconds_is_not() -> None:
    before = layout(a={"llm": Placed(2)})
    hosts = [host("a", silent_ms=DEAD_AFTER_MS), host("b")]
    assert placed([Need("llm", 2, resources=SMALL)], hosts, before).at("a", "llm") == Placed(2)


def test_a_host_that_comes_back_drains_what_runs_elsewhere_meanwhile() -> None:
    hosts = [host("a", running={"llm": 2}), host("b", running={"llm": 2})]
    found = placed([Need("llm", 2, resources=SMALL)], hosts, layout(b={"llm": Placed(2)}))
    assert found.hosts == {"a": {}, "b": {"llm": Placed(2)}}


def test_a_worker_that_drains_holds_its_room() -> None:
    hosts = [host("a", running={"llm": 1})]
    needs = [Need("llm", 0, resources=LARGE), Need("code", 1, resources=LARGE)]
    assert placed(needs, hosts, layout(a={"llm": Placed(1)})).unplaced == (Unplaced("code", 1, 0),)
    assert placed(needs, [host("a")], layout(a={})).total("code") == Placed(1)


def test_sleepers_are_woken_before_anything_is_started() -> None:
    before = layout(a={"llm": Placed(1)}, b={"llm": Placed(0, 1)}, c={})
    found = placed([Need("llm", 3, resources=SMALL)], [host(name) for name in "abc"], before)
    assert found.hosts == {"a": {"llm": Placed(1)}, "b": {"llm": Placed(1)}, "c": {"llm": Placed(1)}}


def test_surplus_workers_fall_asleep_where_they_are() -> None:
    before = layout(a={"llm": Placed(1)}, b={"llm": Placed(1)})
    found = placed([Need("llm", 0, 1, resources=SMALL)], [host("a"), host("b")], before)
    assert found.total("llm") == Placed(0, 1)
    assert found.at("a", "llm") == Placed() or found.at("b", "llm") == Placed()


def test_a_sleeper_leaves_its_gpu_to_others_and_wakes_only_when_it_has_one() -> None:
    gpu = host("gpu", GPU, gpus=2)
    busy = [Need("llm", 2, resources=MODEL), Need("code", 0, 1, resources=MODEL)]
    asleep = placed(busy, [gpu])
    assert asleep.hosts == {"gpu": {"llm": Placed(2), "code": Placed(0, 1)}}
    wanted = [Need("llm", 2, resources=MODEL), Need("code", 1, 1, resources=MODEL)]
    assert placed(wanted, [gpu], asleep).unplaced == (Unplaced("code", 1, 0),)
    assert placed(wanted, [gpu], asleep).at("gpu", "code") == Placed(0, 1), "who cannot wake goes on sleeping"


def test_a_model_needs_one_gpu_that_is_large_enough() -> None:
    model = Resources(cpu=1, memory=GIB, gpu=1, gpu_memory=30 * GIB)
    assert placed([Need("llm", 1, resources=model)], [host("gpu", GPU, gpus=2)]).unplaced
    assert not placed([Need("llm", 1, resources=model)], [host("gpu", GPU, gpus=1)]).unplaced


def test_without_a_figure_a_worker_takes_whole_gpus() -> None:
    whole = Need("llm", 3, resources=Resources(cpu=1, memory=GIB, gpu=1))
    assert placed([whole], [host("gpu", GPU, gpus=2), host("cpu")]).total("llm") == Placed(2)


def test_labels_say_where() -> None:
    need = Need("llm", 1, resources=SMALL.model_copy(update={"labels": ("zone-a",)}))
    hosts = [host("a"), host("b", labels=frozenset({"zone-a", "fast"}))]
    assert placed([need], hosts).hosts == {"a": {}, "b": {"llm": Placed(1)}}


def test_a_leaving_host_keeps_its_workers_until_as_many_are_ready_elsewhere() -> None:
    before = layout(a={"llm": Placed(2)}, b={})
    need, leaving = Need("llm", 2, resources=SMALL), host("a", leaving=True, running={"llm": 2}, ready={"llm": 2})
    for ready, kept in ((0, 2), (1, 1), (2, 0)):
        found = placed([need], [leaving, host("b", running={"llm": 2}, ready={"llm": ready})], before)
        assert found.at("b", "llm") == Placed(2)
        assert found.at("a", "llm") == Placed(kept)


def test_where_a_queues_workers_do_not_get_ready_is_the_last_resort() -> None:
    need, failing = Need("llm", 1, resources=SMALL), host("a", failing=frozenset({"llm"}))
    assert placed([need], [failing, host("b")]).at("b", "llm") == Placed(1)
    assert placed([need], [failing]).at("a", "llm") == Placed(1)


def test_a_new_leader_begins_with_what_runs() -> None:
    hosts = [host("a", running={"llm": 2}), host("b")]
    found = placed([Need("llm", 2, resources=SMALL)], hosts, as_running(hosts))
    assert found.hosts == {"a": {"llm": Placed(2)}, "b": {}}


resources = st.builds(
    Resources, cpu=st.sampled_from([0.5, 1.0, 2.0]), memory=st.sampled_from([1, 2, 4]).map(lambda gib: gib * GIB)
)
counts = st.integers(0, 4)
needs_of = st.lists(
    st.builds(Need, st.sampled_from("xyz"), counts, counts, resources), max_size=3, unique_by=lambda n: n.label
)
hosts_of = st.lists(
    st.builds(
        lambda name, cpu, dead: host(name, Room(cpu, 8 * GIB), silent_ms=20_000 if dead else 0),
        st.sampled_from("abcd"),
        st.sampled_from([1.0, 2.0, 4.0]),
        st.booleans(),
    ),
    max_size=4,
    unique_by=lambda each: each.name,
)


@given(needs_of, needs_of, hosts_of)
def test_no_host_is_promised_more_than_it_has(first: list[Need], then: list[Need], hosts: list[Host]) -> None:
    """Of the same resources before and after: a queue that grows in its place is the configuration's doing."""
    sizes = {need.label: need.resources for need in first}
    then = [need._replace(resources=sizes.get(need.label, need.resources)) for need in then]
    found = placed(then, hosts, placed(first, hosts))
    by_label = {need.label: need for need in then}
    for each in hosts:
        used = Room()
        for label, workers in found.hosts.get(each.name, {}).items():
            used = used.plus(by_label[label].takes(each), workers.warm)
            used = used.plus(by_label[label].takes_asleep(), workers.asleep)
        assert each.room.holds(used)


@given(needs_of, hosts_of)
def test_placed_again_nothing_moves(needs: list[Need], hosts: list[Host]) -> None:
    once = placed(needs, hosts)
    assert placed(needs, hosts, once) == once


@given(needs_of, hosts_of)
def test_all_that_is_needed_is_placed_or_told(needs: list[Need], hosts: list[Host]) -> None:
    found = placed(needs, hosts)
    short = {each.label: each for each in found.unplaced}
    for need in needs:
        missing = short.get(need.label, Unplaced(need.label, 0, 0))
        assert found.total(need.label) == Placed(need.warm - missing.warm, need.asleep - missing.asleep)
        assert min(missing.warm, missing.asleep) >= 0


@given(hosts_of, st.integers(0, 8), st.integers(0, 8))
def test_only_as_many_workers_start_as_are_missing(hosts: list[Host], first: int, then: int) -> None:
    before = placed([Need("x", first, resources=SMALL)], hosts)
    after = placed([Need("x", then, resources=SMALL)], hosts, before)
    started = sum(max(0, after.at(each.name, "x").warm - before.at(each.name, "x").warm) for each in hosts)
    assert started == max(0, after.total("x").warm - before.total("x").warm)


@pytest.mark.parametrize("names", [["a", "b", "c"], ["c", "a", "b"]])
def test_it_does_not_matter_who_was_heard_first(names: list[str]) -> None:
    found = placed([Need("llm", 2, resources=SMALL)], [host(name) for name in names])
    assert [found.at(name, "llm").warm for name in "abc"] == [1, 1, 0]
