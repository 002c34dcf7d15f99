"""The manifests: what an API server takes, sealed, in step with the configuration, and stopped without tearing."""

import json
import re
from copy import deepcopy

import jsonschema
import pytest
import yaml

from headway.cli.commands.top import PAGES
from infra.kubernetes.grace import drain_s
from infra.kubernetes.render import CONFIG, PROMETHEUS, WORKERS, rendered
from infra.kubernetes.workers import manifests, name_of
from schemas.config import Bundle
from schemas.metrics import METRICS
from schemas.models import ModelClass, Queue, queues
from services.aggregator.settings import AggregatorSettings
from services.autoscaler.settings import AutoscalerSettings
from services.chassis.settings import KafkaSettings, PlaneSettings, RedisSettings, Settings
from services.orchestrator.settings import OrchestratorSettings
from services.worker.settings import WorkerSettings
from tests.unit.infra.kustomized import FOLDER, Manifest, check, container, of_kind, plane, pods, with_prometheus

CLASSES = ("classifier", "embedding", "llm", "retriever", "sql", "tools")
WORKER_NAMES = [f"worker-{name}" for name in CLASSES]
SERVICES = ("orchestrator", "aggregator", "autoscaler")
EVERY = [*SERVICES, *WORKER_NAMES, "setup"]
SETTINGS: tuple[type[Settings], ...] = (
    PlaneSettings, KafkaSettings, RedisSettings,
    OrchestratorSettings, AggregatorSettings, AutoscalerSettings, WorkerSettings,
)  # fmt: skip

every_pod = pytest.mark.parametrize("name", EVERY)
every_deployment = pytest.mark.parametrize("name", EVERY[:-1])
every_worker = pytest.mark.parametrize("name", WORKER_NAMES)


@pytest.fixture(scope="module")
def asks_prometheus(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Manifest]:
    """The scaled objects of a plane whose numbers Prometheus tells."""
    return of_kind("ScaledObject", with_prometheus(tmp_path_factory.mktemp("prometheus")))


def queue(**fields: object) -> Queue:
    simulated = {"name": "local", "engine": {"kind": "simulated"}}
    (only,) = queues({"chat": ModelClass.model_validate({"backends": [simulated], **fields})})
    return only


def made(kind: str, of: Queue) -> Manifest:
    (only,) = [manifest for manifest in manifests(of, drain_s=30, namespace="headway") if manifest["kind"] == kind]
    return only


def environment(name: str) -> dict[str, str]:
    return {variable["name"]: variable["value"] for variable in container(name).get("env", ())}


def test_what_is_committed_is_what_the_configuration_makes() -> None:
    files = rendered()
    assert set(files) == {*WORKERS.iterdir(), PROMETHEUS / "kustomization.yaml", CONFIG / "kustomization.yaml"}
    stale = [path for path, text in files.items() if path.read_text(encoding="utf-8") != text]
    assert stale == [], "run `python -m infra.kubernetes`"


def test_everything_that_runs_is_known_to_these_tests() -> None:
    assert sorted(pods()) == sorted(EVERY)
    assert sorted(of_kind("ScaledObject", plane())) == WORKER_NAMES


def test_an_api_server_would_take_every_object(asks_prometheus: dict[str, Manifest]) -> None:
    for manifest in (*plane(), *asks_prometheus.values()):
        check(manifest)


@pytest.mark.parametrize("kind", ["Deployment", "ScaledObject", "PodDisruptionBudget", "NetworkPolicy", "Job"])
def test_it_would_not_take_one_with_a_typo(kind: str) -> None:
    wrong = deepcopy(next(iter(of_kind(kind, plane()).values())))
    wrong["spec"]["selectr"] = {}
    with pytest.raises(jsonschema.ValidationError, match="selectr"):
        check(wrong)


def test_all_is_in_one_namespace_that_takes_only_what_is_sealed() -> None:
    (namespace,) = of_kind("Namespace", plane()).values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {manifest["metadata"].get("namespace") for manifest in plane()} == {None, namespace["metadata"]["name"]}


@every_pod
def test_a_pod_has_no_rights_and_cannot_change_its_programs(name: str) -> None:
    pod = pods()[name]["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["runAsUser"] > 0
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for each in (*pod["containers"], *pod.get("initContainers", ())):
        assert each["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()


@every_pod
def test_a_pod_asks_for_its_share_and_is_held_to_its_memory(name: str) -> None:
    resources = container(name)["resources"]
    assert {"cpu", "memory"} <= resources["requests"].keys()
    assert resources["limits"]["memory"]


@every_pod
def test_every_pod_reads_the_configuration_as_it_stands_in_its_folder(name: str) -> None:
    (volume,) = [volume["configMap"] for volume in pods()[name]["spec"]["volumes"] if volume["name"] == "config"]
    data = of_kind("ConfigMap", plane())[volume["name"]]["data"]
    mounted = {item["path"]: data[item["key"]] for item in volume["items"]}
    assert mounted.keys() >= {"models.yaml", "pipelines/ask.yaml", "functions/guard.py"}
    assert {path: (CONFIG / path).read_text(encoding="utf-8") for path in mounted} == mounted
    assert len(mounted) == len(data)
    assert {"name": "config", "mountPath": "/etc/headway", "readOnly": True} in container(name)["volumeMounts"]


def test_no_file_of_the_configuration_is_left_out() -> None:
    kustomization = yaml.safe_load((CONFIG / "kustomization.yaml").read_text(encoding="utf-8"))
    listed = {line.partition("=")[2] for line in kustomization["configMapGenerator"][0]["files"]}
    found = {path.relative_to(CONFIG).as_posix() for path in CONFIG.rglob("*.*") if "__pycache__" not in path.parts}
    assert listed == found - {"kustomization.yaml"}


@every_worker
def test_a_worker_begins_with_what_its_image_has_prepared_and_may_add_to_it(name: str) -> None:
    pod = pods()[name]["spec"]
    (prepares,) = pod["initContainers"]
    assert prepares["image"] == container(name)["image"]
    assert prepares["command"] == ["cp", "-r", "/var/lib/headway/.", "/home"]
    assert prepares["volumeMounts"] == [{"name": "home", "mountPath": "/home"}]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(name)["volumeMounts"]}
    assert mounts["home"] == "/var/lib/headway"
    assert not [path for path in mounts.values() if path.startswith("/var/lib/headway/")], "it would be copied over"


@every_pod
def test_large_values_are_shared_by_all(name: str) -> None:
    (volume,) = [each for each in pods()[name]["spec"]["volumes"] if "persistentVolumeClaim" in each]
    claim = of_kind("PersistentVolumeClaim", plane())[volume["persistentVolumeClaim"]["claimName"]]
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    mounts = {mount["name"]: mount["mountPath"] for mount in container(name)["volumeMounts"]}
    assert environment(name)["HEADWAY_BLOBS"] == f"{mounts[volume['name']]}/blobs"
    if name == "autoscaler":
        assert environment(name)["HEADWAY_HOME"] == mounts[volume["name"]], "what it has learned outlives its pod"


@every_deployment
def test_a_pod_says_whether_it_works_on_a_door_that_may_be_scraped(name: str) -> None:
    ports = {port["name"]: port["containerPort"] for port in container(name)["ports"]}
    assert container(name)["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "metrics"}
    assert container(name)["livenessProbe"]["httpGet"] == {"path": "/healthz", "port": "metrics"}
    (rule,) = of_kind("NetworkPolicy", plane())["metrics"]["spec"]["ingress"]
    (scraped,) = rule["ports"]
    assert scraped["port"] <= ports["metrics"] <= scraped["endPort"]
    if name in SERVICES:
        (settings,) = [each for each in SETTINGS if each.section() == name]
        assert ports["metrics"] == settings.model_fields["metrics_port"].default
    else:
        assert str(ports["metrics"]) == environment(name)["HEADWAY_WORKER_METRICS_PORT"]
        assert environment(name)["HEADWAY_WORKER_METRICS_HOST"] == "0.0.0.0"


@every_deployment
def test_no_two_pods_of_a_kind_are_taken_away_at_once(name: str) -> None:
    budget = of_kind("PodDisruptionBudget", plane())[name]["spec"]
    assert budget["maxUnavailable"] == 1
    assert budget["selector"]["matchLabels"].items() <= pods()[name]["metadata"]["labels"].items()
    selector = of_kind("Deployment", plane())[name]["spec"]["selector"]["matchLabels"]
    assert budget["selector"]["matchLabels"] == selector


@every_deployment
def test_a_pod_is_not_killed_before_it_has_drained(name: str) -> None:
    default = OrchestratorSettings.model_fields["drain_timeout_s"].default
    drain_timeout_s = float(environment(name).get("HEADWAY_WORKER_DRAIN_TIMEOUT_S", default))
    assert pods()[name]["spec"]["terminationGracePeriodSeconds"] >= drain_timeout_s + 3


@every_worker
def test_a_worker_serves_its_class_as_many_as_the_autoscaler_decides(name: str) -> None:
    label = name.removeprefix("worker-")
    assert container(name)["args"] == ["worker", "--model-class", label]
    assert "replicas" not in of_kind("Deployment", plane())[name]["spec"], "another apply would undo KEDA's"
    scaled = of_kind("ScaledObject", plane())[name]["spec"]
    assert scaled["scaleTargetRef"] == {"name": name}
    (trigger,) = scaled["triggers"]
    assert (trigger["type"], trigger["metricType"]) == ("external-push", "AverageValue")
    assert trigger["metadata"]["queue"] == label


def test_a_worker_asks_for_what_its_class_says() -> None:
    deployment = made("Deployment", queue(resources={"cpu": 0.25, "memory": "1GiB", "gpu": 2}))
    (gpu,) = deployment["spec"]["template"]["spec"]["containers"]
    assert gpu["resources"] == {
        "requests": {"cpu": "250m", "memory": "1024Mi", "nvidia.com/gpu": "2"},
        "limits": {"memory": "2048Mi", "nvidia.com/gpu": "2"},
    }


@pytest.mark.parametrize(
    ("tier", "least", "most", "bounds"),
    [
        ("always", 2, 6, (2, 4, 2)),  # four partitions are the longest lane
        ("standby", 2, 3, (0, 3, 2)),
        ("zero", 0, 3, (0, 3, 1)),
    ],
)
def test_the_bounds_of_a_class_are_those_of_its_policy(
    tier: str, least: int, most: int, bounds: tuple[int, int, int]
) -> None:
    """What is kept beside the warm ones, a budget may choose. Who knows nothing must not take the last one away."""
    scaling = {"tier": tier, "min_replicas": least, "max_replicas": most}
    spec = made("ScaledObject", queue(scaling=scaling))["spec"]
    assert (spec["minReplicaCount"], spec["maxReplicaCount"], spec["fallback"]["replicas"]) == bounds
    assert spec["fallback"]["behavior"] == "currentReplicasIfHigher"


def test_a_name_that_kubernetes_would_refuse_is_refused_before() -> None:
    long = queue().model_copy(update={"group": f"headway-worker-{'c' * 48}.{'b' * 48}"})
    with pytest.raises(ValueError, match="give the class a shorter name"):
        name_of(long)
    assert name_of(queue().model_copy(update={"group": "headway-worker-llm.gpu"})) == "worker-llm-gpu"


def pipeline(**fields: object) -> Bundle:
    step = {"id": "a", "model_class": "chat", **fields}
    return Bundle.model_validate({
        "model_classes": {"chat": {"backends": [{"name": "local", "engine": {"kind": "simulated"}}]}},
        "pipelines": [
            {"name": "slow", "deadline": "90s", "steps": [step], "output": {}},
            {"name": "other", "deadline": "5m", "steps": [{"id": "a", "value": 1}], "output": {}},
        ],
    })  # fmt: skip


@pytest.mark.parametrize(
    ("bundle", "model_class", "seconds"),
    [
        (pipeline(), "chat", 91),
        (pipeline(timeout="20s"), "chat", 21),
        (pipeline(timeout="10m"), "chat", 91),
        (pipeline(fallback=[{"model_class": "spare"}]), "spare", 91),
        (pipeline(), "nobody-calls-it", 61),
    ],
    ids=["its pipeline's deadline", "its own time-out", "whichever is less", "as a fallback", "the default deadline"],
)
def test_a_worker_may_end_the_longest_task_that_it_can_be_given(
    bundle: Bundle, model_class: str, seconds: int
) -> None:
    assert drain_s(bundle, model_class) == seconds


def test_keda_reaches_the_autoscaler_and_nobody_else_does() -> None:
    service = of_kind("Service", plane())["autoscaler"]
    assert service["spec"]["selector"].items() <= pods()["autoscaler"]["metadata"]["labels"].items()
    (port,) = [each for each in service["spec"]["ports"] if each["name"] == "keda"]
    address = f"autoscaler.{service['metadata']['namespace']}.svc:{port['port']}"
    for scaled in of_kind("ScaledObject", plane()).values():
        assert scaled["spec"]["triggers"][0]["metadata"]["scalerAddress"] == address
    listens = {each["name"]: each["containerPort"] for each in container("autoscaler")["ports"]}
    assert str(listens[port["targetPort"]]) == environment("autoscaler")["HEADWAY_AUTOSCALER_KEDA_PORT"]
    policy = of_kind("NetworkPolicy", plane())["keda"]["spec"]
    assert policy["podSelector"]["matchLabels"].items() <= pods()["autoscaler"]["metadata"]["labels"].items()
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "keda"}}}]
    assert [each["port"] for each in rule["ports"]] == [port["targetPort"]]


def test_with_prometheus_what_is_not_there_is_an_error_and_not_zero(asks_prometheus: dict[str, Manifest]) -> None:
    exposed = {metric.name: metric.labels for metric in METRICS}
    assert sorted(asks_prometheus) == WORKER_NAMES
    for name, scaled in asks_prometheus.items():
        (trigger,) = scaled["spec"]["triggers"]
        assert (trigger["type"], trigger["metricType"]) == ("prometheus", "AverageValue")
        asked = trigger["metadata"]
        assert (asked["ignoreNullValues"], asked["threshold"], asked["activationThreshold"]) == ("false", "1", "0")
        assert asked["serverAddress"] == "http://prometheus.monitoring:9090"
        assert scaled["spec"]["fallback"]["replicas"] >= 1
        query = re.fullmatch(r'max\((\w+)\{model_class="([\w-]+)",backend="local"\}\)', asked["query"])
        assert query
        assert exposed[query[1]] == ("model_class", "backend")
        assert query[2] == name.removeprefix("worker-")


def test_every_variable_is_a_setting() -> None:
    known = {f"{each.model_config['env_prefix']}{name}".upper() for each in SETTINGS for name in each.model_fields}
    lines = (FOLDER / "settings.env").read_text(encoding="utf-8").splitlines()
    written = {match[1] for line in lines if (match := re.match(r"#? ?(HEADWAY_[A-Z_]+)=", line))}
    assert len(written) == 9
    variables = (written - {PAGES}).union(*(environment(name) for name in EVERY))
    assert {variable.removesuffix("_FILE") for variable in variables} <= known


def test_headway_top_finds_every_pod_but_the_job() -> None:
    settings = next(data for name, data in of_kind("ConfigMap", plane()).items() if name.startswith("settings-"))[
        "data"
    ]
    services = of_kind("Service", plane())
    seen = set()
    for url in settings[PAGES].split():
        name, port = re.fullmatch(r"http://(\w+):(\d+)/metrics", url).groups()  # type: ignore[union-attr]
        assert int(port) in [each["port"] for each in services[name]["spec"]["ports"]]
        wanted = services[name]["spec"]["selector"].items()
        found = {pod for pod, template in pods().items() if wanted <= template["metadata"]["labels"].items()}
        assert {container(pod)["ports"][0]["containerPort"] for pod in found} == {int(port)}
        seen |= found
    assert seen == set(EVERY) - {"setup"}


def test_a_job_that_has_ended_makes_room_for_the_next() -> None:
    job = of_kind("Job", plane())["setup"]["spec"]
    assert container("setup")["args"][:2] == ["config", "apply"]
    assert "--if-changed" in container("setup")["args"]
    assert job["ttlSecondsAfterFinished"] <= 60
    assert job["template"]["spec"]["restartPolicy"] == "OnFailure"


def test_no_manifest_holds_a_secret() -> None:
    assert of_kind("Secret", plane()) == {}
    assert not re.search(r"://[^/\s]*:[^/\s]*@", json.dumps(plane()))
