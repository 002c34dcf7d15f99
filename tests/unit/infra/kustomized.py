"""The manifests as `kubectl apply -k` would send them, and the schemas that an API server holds them against."""

import json
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from jsonschema import Draft202012Validator

from infra.kubernetes.render import rendered
from tests.unit.infra.composed import ROOT

KUBERNETES = "1.37"
FOLDER = ROOT / "infra" / "kubernetes"
SCALED_OBJECT = Path(__file__).with_name("scaledobject.schema.json")

Manifest = dict[str, Any]


@cache
def plane() -> list[Manifest]:
    """What `infra/kubernetes` builds."""
    return _built(FOLDER)


@cache
def servers() -> list[Manifest]:
    """What `infra/kubernetes/gpu` builds: model servers beside the plane."""
    return _built(FOLDER / "gpu")


def with_prometheus(copy: Path) -> list[Manifest]:
    """The plane with the component that the kustomization names in a comment, in a folder for the copy."""
    _copy(copy)
    file = copy / "kubernetes" / "kustomization.yaml"
    written = file.read_text(encoding="utf-8")
    file.write_text(written.replace("  # - prometheus #", "  - prometheus #"), encoding="utf-8")
    return _built(copy / "kubernetes")


def with_worker(copy: Path, name: str, manifests: list[Manifest]) -> list[Manifest]:
    """The plane with other manifests for one of its workers."""
    _copy(copy)
    (copy / "kubernetes" / "workers" / f"{name}.yaml").write_text(yaml.safe_dump_all(manifests), encoding="utf-8")
    return _built(copy / "kubernetes")


def with_config(copy: Path, config: Path) -> list[Manifest]:
    """The plane of another configuration folder: what `python -m infra.kubernetes` writes, and one line changed."""
    _copy(copy)
    to = copy / "other"
    shutil.copytree(config, to)
    for path, text in rendered(to).items():
        here = copy / "kubernetes" / path.relative_to(FOLDER) if path.is_relative_to(FOLDER) else path
        here.write_text(text, encoding="utf-8")
    file = copy / "kubernetes" / "kustomization.yaml"
    file.write_text(file.read_text(encoding="utf-8").replace("  - ../config #", "  - ../other #"), encoding="utf-8")
    return _built(copy / "kubernetes")


def _copy(to: Path) -> None:
    for name in ("config", "kubernetes"):
        shutil.copytree(FOLDER.parent / name, to / name, ignore=shutil.ignore_patterns("__pycache__"))


def of_kind(kind: str, manifests: list[Manifest]) -> dict[str, Manifest]:
    """By name."""
    return {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == kind}


def pods() -> dict[str, Manifest]:
    """The pod template of everything that runs, by name."""
    running = of_kind("Deployment", plane()) | of_kind("Job", plane())
    return {name: manifest["spec"]["template"] for name, manifest in running.items()}


def container(name: str) -> Manifest:
    """The only one of a pod."""
    (only,) = pods()[name]["spec"]["containers"]
    found: Manifest = only
    return found


def check(manifest: Manifest) -> None:
    """Raises ValidationError, of either library, for what an API server would refuse: a field too many as well."""
    if manifest["kind"] == "ScaledObject":
        Draft202012Validator(_scaled_object()).validate(manifest)
    else:
        kubernetes_validate.validate(manifest, KUBERNETES, strict=True)


@cache
def _scaled_object() -> Manifest:
    schema: Manifest = json.loads(SCALED_OBJECT.read_text(encoding="utf-8"))
    top = schema["properties"]
    closed: Manifest = _closed(schema["properties"]["spec"])
    return {**schema, "properties": {**top, "spec": closed}, "additionalProperties": False}


def _closed(schema: Any) -> Any:
    """`kubectl` refuses fields that a definition does not have."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {name: _closed(part) for name, part in schema.items()}
    return {**made, "additionalProperties": False} if isinstance(schema.get("properties"), dict) else made


def _built(folder: Path) -> list[Manifest]:
    commands = {"kustomize": ["build"], "kubectl": ["kustomize"]}
    tool = next(filter(shutil.which, commands), None)
    if tool is None:
        pytest.skip("there is neither kustomize nor kubectl on this machine")
    done = subprocess.run([tool, *commands[tool], folder], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return list(yaml.safe_load_all(done.stdout))
