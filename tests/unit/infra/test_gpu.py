"""Models on GPUs beside the plane: the example, the compose overlays, and what they say of each other."""

import re
import tomllib
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from schemas.config import Bundle
from services.chassis.config.folder import load_folder
from tests.unit.infra.composed import ROOT, composed, read

GPU = ROOT / "infra" / "gpu"
SERVERS: dict[str, Any] = read("infra/compose.gpu.yml")["services"]


@pytest.fixture(scope="module")
def example() -> Bundle:
    bundle, problems = load_folder(GPU / "config")
    assert problems == []
    assert bundle is not None
    return bundle


def option(server: str, name: str) -> str:
    (value,) = [word.split("=")[1] for word in SERVERS[server]["command"] if word.startswith(f"--{name}=")]
    return str(value)


def test_the_example_has_its_models_where_compose_has_servers(example: Bundle) -> None:
    (vllm,) = example.model_classes["llm"].backends
    url = urlsplit(vllm.engine.base_url)  # type: ignore[union-attr]
    assert (url.hostname, url.port) == ("vllm", 8000)
    assert vllm.engine.model == option("vllm", "served-model-name")  # type: ignore[union-attr]
    (triton,) = example.model_classes["embedding"].backends
    assert triton.engine.address == "triton:8001"  # type: ignore[union-attr]
    assert {"vllm", "triton"} == SERVERS.keys()


def test_compose_has_hosts_for_the_classes_of_the_example(example: Bundle) -> None:
    services = composed("infra/compose.gpu.yml")["services"].values()
    lists = [
        service["environment"].get("HEADWAY_HOST_MODEL_CLASSES", "")
        for service in services
        if "environment" in service
    ]
    assert example.model_classes.keys() <= set(",".join(lists).split(","))


def test_the_model_that_a_worker_loads_and_unloads_is_in_the_repository_and_is_its_worker_s_alone(
    example: Bundle,
) -> None:
    embedding = example.model_classes["embedding"]
    (triton,) = embedding.backends
    assert triton.engine.model_control == option("triton", "model-control-mode")  # type: ignore[union-attr]
    assert embedding.scaling.max_replicas == 1, "what one unloads, all miss"
    assert (GPU / "model-repository" / triton.engine.model / "config.pbtxt").exists()  # type: ignore[union-attr]
    (volume,) = SERVERS["triton"]["volumes"]
    assert (ROOT / volume.split(":")[0]).samefile(GPU / "model-repository")


def test_vllm_leaves_triton_a_part_of_the_card() -> None:
    assert float(option("vllm", "gpu-memory-utilization")) <= 0.8


def test_a_server_may_end_its_calls_before_it_is_killed() -> None:
    for server, name in (("vllm", "shutdown-timeout"), ("triton", "exit-timeout-secs")):
        assert int(SERVERS[server]["stop_grace_period"].removesuffix("s")) >= int(option(server, name)) + 5


def test_a_triton_of_which_a_model_sleeps_is_healthy() -> None:
    assert option("triton", "strict-readiness") == "false"


@pytest.mark.parametrize(("overlay", "holders"), [("gpu", {"vllm", "triton"}), ("vllm", {"worker-llm"})])
def test_those_that_compute_on_the_card_reserve_it_and_nobody_else_does(overlay: str, holders: set[str]) -> None:
    services = composed(f"infra/compose.{overlay}.yml")["services"]
    reserving = {name for name, service in services.items() if "deploy" in service}
    assert reserving == holders
    for name in holders:
        (device,) = services[name]["deploy"]["resources"]["reservations"]["devices"]
        assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
        assert name == "triton" or services[name]["environment"]["HF_HUB_OFFLINE"] == 1


def test_one_version_of_vllm_and_one_of_triton_is_meant_everywhere() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (pinned,) = re.findall(r"vllm==([\d.]+)", str(project["optional-dependencies"]["vllm"]))
    kustomization = yaml.safe_load((ROOT / "infra/kubernetes/gpu/kustomization.yaml").read_text(encoding="utf-8"))
    images = [f"{image['name']}:{image['newTag']}" for image in kustomization["images"]]
    assert images == [SERVERS[name]["image"] for name in ("vllm", "triton")]
    assert images[0] == f"vllm/vllm-openai:v{pinned}"


def test_a_worker_with_vllm_has_the_image_with_vllm() -> None:
    worker = composed("infra/compose.vllm.yml")["services"]["worker-llm"]
    assert worker["image"] == "headway:vllm"
    assert worker["build"]["target"] == "vllm"
    assert worker["command"] == ["serve", "host"]
