"""One decision of a host, from any state: what is well is left alone, and nobody is told two things at once."""

from hypothesis import given
from hypothesis import strategies as st

from services.host.domain.replicas import (
    KILL_AFTER_S,
    SILENT_S,
    Forget,
    Kill,
    Replica,
    Sleep,
    Start,
    Stop,
    Worker,
    after_exit,
    decide,
)

NOW = 1_000.0
PLACES = [(label, number) for label in ("llm", "embedding") for number in range(3)]
VERSIONS = ["v1", "v2"]
replicas = st.builds(Replica, st.sampled_from(["llm", "embedding"]), st.integers(0, 2), st.sampled_from(VERSIONS))
moments = st.one_of(st.floats(NOW - 120, NOW), st.sampled_from([NOW, NOW - KILL_AFTER_S, NOW - SILENT_S]))
workers = st.builds(
    Worker,
    st.sampled_from(["starting", "ready", "dozing", "asleep", "stopping", "down"]),
    moments,
    moments,
    st.integers(1, 12),
    st.booleans(),
)
wishes = st.lists(replicas, unique_by=lambda replica: replica.place)
hosts = st.tuples(wishes, st.dictionaries(replicas, workers))
calm = Worker("ready", NOW - 120, NOW, was_ready=True)
calm_hosts = st.tuples(
    st.tuples(*(st.sampled_from([Replica(*place, version) for version in VERSIONS]) for place in PLACES)),
    st.fixed_dictionaries({Replica(*place, "v1"): st.just(calm) for place in PLACES}),
)
"""Nothing starts or stops: the moment at which outdated workers are replaced."""
labels = st.sets(st.sampled_from(["llm", "embedding"]))


@given(hosts)
def test_a_worker_is_told_one_thing_at_most(host: tuple[list[Replica], dict[Replica, Worker]]) -> None:
    told = [action.replica for action in decide(*host, NOW)]
    assert len(told) == len(set(told))


@given(hosts)
def test_what_is_as_wanted_and_answers_is_left_alone(
    host: tuple[list[Replica], dict[Replica, Worker]],
) -> None:
    wanted, running = host
    told = {action.replica for action in decide(wanted, running, NOW)}
    for replica, worker in running.items():
        if worker.state in ("starting", "ready") and replica in wanted and NOW - worker.heard_at < SILENT_S:
            assert replica not in told


@given(hosts)
def test_each_action_fits_what_is_at_its_place(host: tuple[list[Replica], dict[Replica, Worker]]) -> None:
    wanted, running = host
    for action in decide(wanted, running, NOW):
        worker = running.get(action.replica)
        if isinstance(action, Start):
            assert action.replica in wanted
            assert worker is None or worker.state == "down"
        elif isinstance(action, Stop):
            assert worker is not None
            assert worker.is_live
        elif isinstance(action, Kill):
            assert worker is not None
            since = worker.since if worker.state == "stopping" else worker.heard_at
            assert NOW - since >= (KILL_AFTER_S if worker.state == "stopping" else SILENT_S)
        elif isinstance(action, Forget):
            assert action.replica not in wanted
        else:
            assert worker is not None
            assert worker.is_live


@given(st.one_of(hosts, calm_hosts), labels)
def test_a_place_is_left_without_a_worker_only_where_there_is_no_room_for_its_heir(
    host: tuple[list[Replica], dict[Replica, Worker]], full_for: set[str]
) -> None:
    wanted, running = host
    told = [action.replica for action in decide(wanted, running, NOW, full_for=full_for) if isinstance(action, Sleep)]
    heirs = {replica.place: replica for replica in wanted}
    left = [heir for replica in told if (heir := heirs.get(replica.place)) and not _is_ready(running.get(heir))]
    assert len(left) <= 1
    assert {heir.label for heir in left} <= full_for


def _is_ready(worker: Worker | None) -> bool:
    return worker is not None and worker.state == "ready"


@given(workers, st.floats(0, 100))
def test_what_ended_unasked_waits_longer_each_time_up_to_a_bound(worker: Worker, lived_s: float) -> None:
    left = after_exit(worker, worker.since + lived_s)
    if worker.state == "stopping":
        assert left is None
        return
    assert left is not None
    assert 1 <= left.failures <= worker.failures + 1
    assert 0 < left.retry_at - left.since <= 10.0 + 1e-9
