"""One decision of a host, from any state: what is well is left alone, and nobody is told two things at once."""

from hypothesis import given
from hypothesis import strategies as st

from services.host.domain.replicas import (
    KILL_AFTER_S,
    SILENT_S,
    Forget,
    Kill,
    Replica,
    Start,
    Stop,
    Worker,
    after_exit,
    decide,
)

NOW = 1_000.0
places = st.builds(Replica, st.sampled_from(["llm", "embedding"]), st.integers(0, 2))
versions = st.sampled_from(["v1", "v2"])
moments = st.one_of(st.floats(NOW - 120, NOW), st.sampled_from([NOW, NOW - KILL_AFTER_S, NOW - SILENT_S]))
workers = st.builds(
    Worker,
    st.sampled_from(["starting", "ready", "dozing", "asleep", "stopping", "down"]),
    versions,
    moments,
    moments,
    st.integers(1, 12),
)
hosts = st.tuples(st.dictionaries(places, versions), st.dictionaries(places, workers))
calm = st.builds(Worker, st.just("ready"), versions, st.just(NOW - 120), st.just(NOW))
calm_hosts = st.tuples(
    st.fixed_dictionaries({Replica("llm", number): versions for number in range(3)}),
    st.fixed_dictionaries({Replica("llm", number): calm for number in range(3)}),
)
"""Nothing starts or stops: the moment at which outdated workers are replaced."""


@given(hosts)
def test_a_place_is_told_one_thing_at_most(host: tuple[dict[Replica, str], dict[Replica, Worker]]) -> None:
    told = [action.replica for action in decide(*host, NOW)]
    assert len(told) == len(set(told))


@given(hosts)
def test_what_is_as_wanted_and_answers_is_left_alone(
    host: tuple[dict[Replica, str], dict[Replica, Worker]],
) -> None:
    wanted, running = host
    told = {action.replica for action in decide(wanted, running, NOW)}
    for replica, worker in running.items():
        if (
            worker.state in ("starting", "ready")
            and wanted.get(replica) == worker.version
            and NOW - worker.heard_at < SILENT_S
        ):
            assert replica not in told


@given(hosts)
def test_each_action_fits_what_is_at_its_place(host: tuple[dict[Replica, str], dict[Replica, Worker]]) -> None:
    wanted, running = host
    for action in decide(wanted, running, NOW):
        worker = running.get(action.replica)
        if isinstance(action, Start):
            assert wanted[action.replica] == action.version
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


@given(st.one_of(hosts, calm_hosts))
def test_no_two_serving_workers_are_replaced_at_once(
    host: tuple[dict[Replica, str], dict[Replica, Worker]],
) -> None:
    wanted, running = host
    stopped = [action.replica for action in decide(wanted, running, NOW) if isinstance(action, Stop)]
    assert sum(running[replica].state == "ready" and replica in wanted for replica in stopped) <= 1


@given(workers, st.floats(0, 100))
def test_what_ended_unasked_waits_longer_each_time_up_to_a_bound(worker: Worker, lived_s: float) -> None:
    left = after_exit(worker, worker.since + lived_s)
    if worker.state == "stopping":
        assert left is None
        return
    assert left is not None
    assert 1 <= left.failures <= worker.failures + 1
    assert 0 < left.retry_at - left.since <= 10.0 + 1e-9
