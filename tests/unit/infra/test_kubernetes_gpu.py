"""Models on GPUs in Kubernetes: servers beside the plane, reached by workers alone, and workers that hold one."""

import re
from pathlib import Path

import pytest

from infra.kubernetes.workers import manifests
from schemas.models import ModelClass, queues
from services.chassis.config.folder import load_folder
from tests.unit.infra.composed import ROOT, read
from tests.unit.infra.kustomized import Manifest, check, of_kind, plane, pods, servers, with_config, with_worker

NAMES = ("vllm", "triton")
GPU = "nvidia.com/gpu"
WORKER = {"app.kubernetes.io/component": "worker"}
PROMETHEUS = {
    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}},
    "podSelector": {"matchLabels": {"app.kubernetes.io/name": "prometheus"}},
}

every_server = pytest.mark.parametrize("name", NAMES)


def template(name: str) -> Manifest:
    found: Manifest = of_kind("Deployment", servers())[name]["spec"]["template"]
    return found


def container(name: str) -> Manifest:
    (only,) = template(name)["spec"]["containers"]
    found: Manifest = only
    return found


def ports(name: str) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container(name)["ports"]}


def option(arguments: list[str], name: str) -> str:
    (value,) = [argument.split("=")[1] for argument in arguments if argument.startswith(f"--{name}=")]
    return value


def test_an_api_server_would_take_every_object() -> None:
    assert sorted(of_kind("Deployment", servers())) == sorted(NAMES)
    for manifest in servers():
        check(manifest)


def test_all_is_in_the_namespace_of_the_plane_and_nothing_has_a_name_of_the_plane() -> None:
    (namespace,) = of_kind("Namespace", plane())
    assert {manifest["metadata"]["namespace"] for manifest in servers()} == {namespace}
    taken = {(manifest["kind"], manifest["metadata"]["name"]) for manifest in plane()}
    assert not taken & {(manifest["kind"], manifest["metadata"]["name"]) for manifest in servers()}


@every_server
def test_a_server_is_as_sealed_as_the_namespace_wants_it(name: str) -> None:
    """What the profile `restricted` asks of a pod, and a root file system that cannot be written."""
    sealed = pods()["orchestrator"]["spec"]
    pod = template(name)["spec"]
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"] == sealed["securityContext"]
    assert container(name)["securityContext"] == sealed["containers"][0]["securityContext"]
    assert not [volume for volume in pod["volumes"] if "hostPath" in volume]
    assert not {"hostNetwork", "hostPID", "hostIPC"} & pod.keys()
    assert {mount["name"] for mount in container(name)["volumeMounts"] if mount.get("readOnly")} == {"weights"}


@every_server
def test_a_server_has_one_card_and_does_not_wait_for_another_to_be_replaced(name: str) -> None:
    resources = container(name)["resources"]
    assert (resources["requests"][GPU], resources["limits"][GPU]) == ("1", "1")
    assert {"cpu", "memory"} <= resources["requests"].keys()
    assert resources["limits"]["memory"]
    assert of_kind("Deployment", servers())[name]["spec"]["strategy"] == {"type": "Recreate"}


@every_server
def test_variables_of_services_do_not_reach_it(name: str) -> None:
    """`VLLM_PORT=tcp://…`, of a Service called vllm, is one of vLLM's own settings."""
    assert template(name)["spec"]["enableServiceLinks"] is False


@pytest.mark.parametrize(
    ("name", "ready", "alive", "loads_s"),
    [("vllm", "/health", "/health", 1_800), ("triton", "/v2/health/ready", "/v2/health/live", 600)],
)
def test_a_server_is_asked_nothing_before_its_models_are_loaded_and_may_load_for_long(
    name: str, ready: str, alive: str, loads_s: int
) -> None:
    probes = {kind: container(name)[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")}
    paths = {kind: probe["httpGet"]["path"] for kind, probe in probes.items()}
    assert paths == {"startup": ready, "readiness": ready, "liveness": alive}
    assert {probe["httpGet"]["port"] for probe in probes.values()} == {"http"}
    assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= loads_s


@pytest.mark.parametrize(("name", "timeout"), [("vllm", "shutdown-timeout"), ("triton", "exit-timeout-secs")])
def test_a_server_ends_its_calls_once_it_is_asked_no_more(name: str, timeout: str) -> None:
    command, seconds = container(name)["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    taken_s = int(seconds) + int(option(container(name)["args"], timeout))
    assert template(name)["spec"]["terminationGracePeriodSeconds"] >= taken_s + 5


def test_only_workers_ask_for_answers_and_prometheus_for_metrics() -> None:
    policies = of_kind("NetworkPolicy", servers())
    allowed = {name: policy["spec"]["ingress"] for name, policy in policies.items()}
    workers = {"podSelector": {"matchLabels": WORKER}}
    assert allowed == {
        "vllm": [{"from": [workers, PROMETHEUS], "ports": [{"protocol": "TCP", "port": "http"}]}],
        "triton": [
            {"from": [workers], "ports": [{"protocol": "TCP", "port": "grpc"}]},
            {"from": [PROMETHEUS], "ports": [{"protocol": "TCP", "port": "metrics"}]},
        ],
    }
    for name, policy in policies.items():
        assert policy["spec"]["podSelector"]["matchLabels"].items() <= template(name)["metadata"]["labels"].items()
        assert {rule["port"] for each in allowed[name] for rule in each["ports"]} <= ports(name).keys()


def test_the_door_of_metrics_that_the_plane_opens_to_all_is_none_of_theirs() -> None:
    (rule,) = of_kind("NetworkPolicy", plane())["metrics"]["spec"]["ingress"]
    (open_to_all,) = rule["ports"]
    for name in NAMES:
        assert not [port for port in ports(name).values() if open_to_all["port"] <= port <= open_to_all["endPort"]]


def test_every_worker_is_one_whom_they_let_in() -> None:
    for name, template_ in pods().items():
        is_worker = WORKER.items() <= template_["metadata"]["labels"].items()
        assert is_worker == name.startswith("worker-")


def test_the_configuration_of_the_example_finds_them() -> None:
    bundle, _ = load_folder(ROOT / "infra" / "gpu" / "config")
    assert bundle is not None
    services = of_kind("Service", servers())
    for each in queues(bundle.model_classes):
        address = getattr(each.engine, "base_url", None) or each.engine.address  # type: ignore[union-attr]
        host, port = re.fullmatch(r"(?:http://)?(\w+):(\d+)(?:/v1)?", address).groups()  # type: ignore[union-attr]
        doors = {door["port"]: door["targetPort"] for door in services[host]["spec"]["ports"]}
        assert doors[int(port)] in ports(host)
        assert services[host]["spec"]["selector"].items() <= template(host)["metadata"]["labels"].items()


def test_they_are_started_as_in_compose() -> None:
    """But for where the weights are, and for how long they may take to end."""
    composed = read("infra/compose.gpu.yml")["services"]
    settings = next(iter(of_kind("ConfigMap", servers()).values()))["data"]
    differ = r"--(shutdown-timeout|exit-timeout-secs|model-repository)=.*"
    for name in NAMES:
        here = [re.sub(r"\$\((\w+)\)", lambda found: settings[found[1]], word) for word in words(container(name))]
        there = [*composed[name].get("entrypoint", []), *composed[name]["command"]]
        there = [settings.get(word, word) for word in there]
        assert [word for word in here if not re.fullmatch(differ, word)] == [
            word for word in there if not re.fullmatch(differ, word)
        ]


def words(of: Manifest) -> list[str]:
    return [*of["command"], *of["args"]]


def test_the_plane_is_made_of_the_example_as_the_guide_says(tmp_path: Path) -> None:
    made = with_config(tmp_path, ROOT / "infra" / "gpu" / "config")
    workers = [name for name in of_kind("Deployment", made) if name.startswith("worker-")]
    assert workers == ["worker-embedding", "worker-llm"]
    (config,) = [data["data"] for name, data in of_kind("ConfigMap", made).items() if name.startswith("config-")]
    assert config.keys() == {"models.yaml", "pipelines.answer.yaml", "pipelines.embed.yaml"}


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """The plane's Deployment of a class whose engine is vLLM."""
    engine = {"kind": "vllm", "model": "Qwen/Qwen3-8B"}
    llm = ModelClass.model_validate({"backends": [{"name": "gpu", "engine": engine}], "resources": {"gpu": 1}})
    (queue,) = queues({"llm": llm})
    made = manifests(queue, drain_s=30, namespace="headway")
    deployment = of_kind("Deployment", with_worker(tmp_path_factory.mktemp("vllm"), "worker-llm", made))["worker-llm"]
    check(deployment)
    spec: Manifest = deployment["spec"]
    return spec


def test_a_worker_whose_engine_is_vllm_has_its_image_the_weights_and_a_card(worker: Manifest) -> None:
    pod = worker["template"]["spec"]
    (only,) = pod["containers"]
    assert only["image"] == "headway:vllm"
    assert only["resources"]["limits"][GPU] == "1"
    assert {"name": "weights", "mountPath": "/weights", "readOnly": True} in only["volumeMounts"]
    variables = {variable["name"]: variable["value"] for variable in only["env"]}
    assert variables["HF_HOME"] == "/weights/huggingface"
    assert variables["HEADWAY_BLOBS"] == "/shared/blobs", "as all others"
    claims = {
        volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"] if "persistentVolumeClaim" in volume
    }
    assert "weights" in claims & set(of_kind("PersistentVolumeClaim", servers()))


def test_a_worker_with_a_card_goes_before_the_one_that_takes_its_card(worker: Manifest) -> None:
    assert worker["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}


def test_other_workers_know_nothing_of_gpus() -> None:
    for name, pod in pods().items():
        if name.startswith("worker-"):
            assert "tolerations" not in pod["spec"]
            assert "/weights" not in str(pod)
