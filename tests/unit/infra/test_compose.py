"""The compose files: sealed, bounded, watched, started in order, open to this machine alone, without secrets."""

import re
from itertools import chain
from typing import Any

import pytest

from headway.cli.commands.top import PAGES
from headway.plane.kafka import broker_settings
from schemas.topics import all_topics
from services.aggregator.settings import AggregatorSettings
from services.chassis.settings import KafkaSettings, RedisSettings, ServiceSettings, Settings
from services.host.settings import HostSettings
from services.orchestrator.settings import OrchestratorSettings
from tests.unit.infra.composed import ROOT, composed, read

OVERLAYS = ("secure", "gpu", "vllm", "tracing")
PLANES = {"plain": composed(), **{name: composed(f"infra/compose.{name}.yml") for name in OVERLAYS}}
ONE_SHOTS = {"setup", "access"}
EVERY = [
    pytest.param(service, id=f"{plane}-{name}")
    for plane, file in PLANES.items()
    for name, service in file["services"].items()
]
PLAIN: dict[str, Any] = PLANES["plain"]["services"]
WORKERS = [name for name in PLAIN if name.startswith("worker-")]
OURS = [name for name, service in PLAIN.items() if service["image"] == "headway:local"]

VOLUMES_OF_IMAGES = {
    "apache/kafka": {"/etc/kafka/secrets", "/mnt/shared/config", "/var/lib/kafka/data"},
    "prom/prometheus": {"/prometheus"},
    "redis": {"/data"},
}
"""What an image declares and nothing mounts, Docker makes anew, and nameless, for each container."""

every_service = pytest.mark.parametrize("service", EVERY)


def seconds(duration: str) -> int:
    assert duration.endswith("s")
    return int(duration.removesuffix("s"))


@every_service
def test_a_service_takes_no_more_than_its_share(service: dict[str, Any]) -> None:
    assert service["mem_limit"]
    assert 0 < service["cpus"] <= 4
    assert service["pids_limit"]
    assert service["logging"] == {"driver": "local"}, "a log that is never cut fills the disk"


@every_service
def test_a_service_cannot_change_its_programs_nor_gain_rights(service: dict[str, Any]) -> None:
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert int(service["user"].split(":")[0]) > 0
    assert "privileged" not in service
    assert not [volume for volume in service.get("volumes", ()) if "docker.sock" in volume]


@every_service
def test_what_is_kept_in_memory_can_be_written_by_whoever_runs(service: dict[str, Any]) -> None:
    """A tmpfs is root's, with the mode that the folder has in the image: only `/tmp` is everybody's."""
    user, group = service["user"].split(":")
    for folder, _, options in (mount.partition(":") for mount in service.get("tmpfs", ())):
        assert folder == "/tmp" or options in ("ro", f"uid={user},gid={group}")


@every_service
def test_no_start_leaves_a_volume_without_a_name(service: dict[str, Any]) -> None:
    declared = VOLUMES_OF_IMAGES.get(service["image"].split(":")[0], set())
    mounted = {mount.split(":")[1] for mount in service.get("volumes", ())}
    assert declared <= mounted | {mount.split(":")[0] for mount in service.get("tmpfs", ())}


@pytest.mark.parametrize("plane", PLANES)
def test_whatever_ends_is_started_again_but_for_what_has_done_its_work(plane: str) -> None:
    restarts = {name: service["restart"] for name, service in PLANES[plane]["services"].items()}
    assert {name for name, policy in restarts.items() if policy == "no"} == ONE_SHOTS & set(restarts)
    assert set(restarts.values()) == {"no", "unless-stopped"}


@pytest.mark.parametrize("plane", PLANES)
def test_every_service_but_the_one_shots_says_whether_it_works(plane: str) -> None:
    for name, service in PLANES[plane]["services"].items():
        healthcheck = service.get("healthcheck")
        if name in ONE_SHOTS:
            assert healthcheck == {"disable": True}
        elif service["image"] == "headway:local":
            assert healthcheck is None, "the image's own asks /readyz"
        else:
            assert healthcheck["test"]
            assert {"interval", "timeout", "retries", "start_period"} <= set(healthcheck)


@pytest.mark.parametrize("plane", PLANES)
def test_a_service_starts_once_what_it_needs_works(plane: str) -> None:
    services = PLANES[plane]["services"]
    for service in services.values():
        for other, condition in service.get("depends_on", {}).items():
            done = "service_completed_successfully" if other in ONE_SHOTS else "service_healthy"
            assert other in services
            assert condition == {"condition": done}
    for name in OURS:
        assert {"kafka"} <= set(services[name]["depends_on"])
    for name in set(OURS) - {"setup"}:
        assert {"redis", "setup"} <= set(services[name]["depends_on"])


@pytest.mark.parametrize("plane", PLANES)
def test_ports_are_open_to_this_machine_alone_and_only_where_people_look(plane: str) -> None:
    services = PLANES[plane]["services"]
    ports = {name: service["ports"] for name, service in services.items() if "ports" in service}
    assert ports == {
        "kafka": ["127.0.0.1:9092:9092"],
        "prometheus": ["127.0.0.1:9090:9090"],
        "grafana": ["127.0.0.1:3000:3000"],
        **({"jaeger": ["127.0.0.1:16686:16686"]} if plane == "tracing" else {}),
    }
    assert {service.get("network_mode") for service in services.values()} <= {None, "service:kafka"}


@pytest.mark.parametrize("plane", PLANES)
def test_what_is_kept_is_kept_in_named_volumes_and_the_rest_is_mounted_to_be_read(plane: str) -> None:
    file = PLANES[plane]
    mounts = list(chain.from_iterable(service.get("volumes", ()) for service in file["services"].values()))
    kept = {mount.split(":")[0] for mount in mounts if not mount.endswith(":ro")}
    assert kept == set(file["volumes"])


@pytest.mark.parametrize("plane", ["plain", "gpu", "vllm", "tracing"])
def test_every_file_that_is_mounted_is_there(plane: str) -> None:
    services = PLANES[plane]["services"]
    mounts = chain.from_iterable(service.get("volumes", ()) for service in services.values())
    for source in {mount.split(":")[0] for mount in mounts if mount.startswith("./")}:
        assert (ROOT / source).exists(), source


@every_service
def test_no_secret_is_a_variable(service: dict[str, Any]) -> None:
    for name, value in service.get("environment", {}).items():
        if re.search(r"PASSWORD|SECRET|TOKEN|API_KEY|CREDENTIAL", name):
            assert name.endswith("_FILE"), name
            assert str(value).startswith("/run/secrets/"), name
        assert not re.search(r"://[^/]*:[^/]*@", str(value)), f"{name} holds a password"


def test_every_secret_is_a_file_that_git_ignores_and_the_script_makes() -> None:
    file = PLANES["secure"]
    made = {secret["file"] for secret in file["secrets"].values()}
    assert all(path.startswith("./infra/secrets/") for path in made)
    assert "infra/secrets/\n" in (ROOT / ".gitignore").read_text(encoding="utf-8")
    used = set(chain.from_iterable(service.get("secrets", ()) for service in file["services"].values()))
    assert used == set(file["secrets"])


def test_with_the_secure_overlay_every_part_of_the_plane_shows_who_it_is() -> None:
    for name in OURS:
        environment = PLANES["secure"]["services"][name]["environment"]
        assert environment["HEADWAY_KAFKA_SECURITY_PROTOCOL"] == "SASL_SSL"
        assert environment["HEADWAY_KAFKA_SASL_PASSWORD_FILE"] == "/run/secrets/kafka-password"
        assert environment["HEADWAY_REDIS_URL"] == ""


def test_with_the_secure_overlay_no_listener_beyond_the_loopback_is_open() -> None:
    environment = PLANES["secure"]["services"]["kafka"]["environment"]
    listeners = dict(pair.split("://") for pair in environment["KAFKA_LISTENERS"].split(","))
    protocols = dict(pair.split(":") for pair in environment["KAFKA_LISTENER_SECURITY_PROTOCOL_MAP"].split(","))
    assert listeners.keys() == protocols.keys()
    for name, address in listeners.items():
        assert protocols[name] == "SASL_SSL" or address.startswith("localhost:")
    assert environment["KAFKA_ALLOW_EVERYONE_IF_NO_ACL_FOUND"] == "false"


def test_each_model_class_has_one_kind_of_worker() -> None:
    classes = [name for worker in WORKERS for name in allowed(worker)]
    assert sorted(classes) == sorted(read("infra/config/models.yaml")["model_classes"])


def allowed(worker: str) -> tuple[str, ...]:
    return tuple(PLAIN[worker]["environment"]["HEADWAY_HOST_MODEL_CLASSES"].split(","))


def test_a_service_that_can_be_multiplied_has_no_name_and_no_port_of_its_own() -> None:
    for worker in WORKERS:
        assert {"container_name", "hostname", "ports"}.isdisjoint(PLAIN[worker])


@pytest.mark.parametrize("name", OURS)
def test_a_variable_of_ours_is_a_setting(name: str) -> None:
    known: list[type[Settings]] = [KafkaSettings, RedisSettings, HostSettings]
    settings = {f"{kind.model_config['env_prefix']}{field}".upper() for kind in known for field in kind.model_fields}
    settings.add(PAGES)
    variables = PLANES["secure"]["services"][name]["environment"]
    assert {variable.removesuffix("_FILE") for variable in variables} <= settings


@pytest.mark.parametrize(
    ("service", "settings"),
    [
        ("orchestrator", OrchestratorSettings),
        ("aggregator", AggregatorSettings),
        *((w, HostSettings) for w in WORKERS),
    ],
)
def test_what_drains_is_not_killed_meanwhile(service: str, settings: type[ServiceSettings]) -> None:
    teardown_s = 1
    assert seconds(PLAIN[service]["stop_grace_period"]) > settings().drain_timeout_s + teardown_s


def test_the_broker_is_set_as_the_embedded_one_is() -> None:
    here = {
        name.removeprefix("KAFKA_").replace("_", ".").lower(): str(value)
        for name, value in PLAIN["kafka"]["environment"].items()
    }
    addresses = {
        "controller.quorum.voters", "listeners", "advertised.listeners", "listener.security.protocol.map",
        "inter.broker.listener.name", "log.dirs",
    }  # fmt: skip
    embedded = broker_settings(9092, 9093)
    assert {name: here.get(name) for name in embedded.keys() - addresses} == {
        name: value for name, value in embedded.items() if name not in addresses
    }


def test_the_rights_of_the_plane_cover_its_topics() -> None:
    assert all(topic.name.startswith("inference-") for topic in all_topics({}, {}))
    assert "allow headway --operation All --topic inference- " in (ROOT / "infra/kafka/access.sh").read_text("utf-8")
