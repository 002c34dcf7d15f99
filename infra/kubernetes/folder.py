"""A configuration folder as a part of any plane: its files in a ConfigMap, mounted as they stand, in every pod.

A ConfigMap has no folders, so `pipelines/ask.yaml` is its key `pipelines.ask.yaml`, and the mount puts it back.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from infra.kubernetes.written import dumped

FILE = "kustomization.yaml"
MOUNT = "/etc/headway"
LEFT_OUT = ("__pycache__", FILE)


def component(folder: Path) -> dict[str, Any]:
    """What kustomize reads in the folder. Raises ValueError for two files that would have one key."""
    keys = {_key(path): path.as_posix() for path in files(folder)}
    if len(keys) < len(list(files(folder))):
        raise ValueError(f"{folder}: two files differ only in dots and slashes: rename one")
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "configMapGenerator": [{"name": "config", "files": [f"{key}={path}" for key, path in keys.items()]}],
        "patches": [{"target": {"kind": "Deployment|Job"}, "patch": dumped(_mount(keys))}],
    }


def files(folder: Path) -> Iterator[Path]:
    """Relative to the folder; no caches, and nothing hidden."""
    for path in sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()):
        if not any(part.startswith(".") or part in LEFT_OUT for part in path.parts):
            yield path


def _key(path: Path) -> str:
    return path.as_posix().replace("/", ".")


def _mount(keys: dict[str, str]) -> dict[str, Any]:
    items = [{"key": key, "path": path} for key, path in keys.items()]
    pod = {
        "containers": [
            {"name": "headway", "volumeMounts": [{"name": "config", "mountPath": MOUNT, "readOnly": True}]}
        ],
        "volumes": [{"name": "config", "configMap": {"name": "config", "items": items}}],
    }
    patch = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "all"}}
    return {**patch, "spec": {"template": {"spec": pod}}}
