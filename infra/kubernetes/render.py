"""What follows from a configuration folder: a component of its own, a file a queue, and the other trigger of KEDA."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import yaml

from infra.kubernetes import folder
from infra.kubernetes.grace import drain_s
from infra.kubernetes.triggers import prometheus
from infra.kubernetes.workers import manifests, name_of
from infra.kubernetes.written import dumped
from schemas.config import Bundle
from schemas.models import Queue, queues
from services.chassis.config.folder import load_folder

HERE = Path(__file__).parent
CONFIG = HERE.parent / "config"
WORKERS, PROMETHEUS = HERE / "workers", HERE / "prometheus"
WRITTEN_BY = "# Written by `python -m infra.kubernetes`, from the configuration.\n"


def rendered(config: Path = CONFIG) -> dict[Path, str]:
    """Each file and what belongs in it. Raises ValueError for a configuration that cannot be used."""
    bundle = _bundle(config)
    found = list(queues(bundle.model_classes))
    documents = {config / folder.FILE: [folder.component(config)], **dict(_workers(bundle, found))}
    if len(documents) < len(found) + 2:
        raise ValueError(f"{config}: two queues differ only in a dot and a hyphen: rename one")
    documents[PROMETHEUS / folder.FILE] = [_asks_prometheus(found)]
    return {path: WRITTEN_BY + dumped(*of) for path, of in documents.items()}


def write(config: Path) -> None:
    """Writes all of them; a queue that is gone loses its file."""
    made = rendered(config)
    for folder_ in (WORKERS, PROMETHEUS):
        folder_.mkdir(exist_ok=True)
    for path in set(WORKERS.iterdir()) - made.keys():
        path.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")


def _bundle(config: Path) -> Bundle:
    bundle, problems = load_folder(config)
    if bundle is None:
        raise ValueError("\n".join(map(str, problems)))
    return bundle


def _workers(bundle: Bundle, found: Sequence[Queue]) -> Iterator[tuple[Path, list[dict[str, Any]]]]:
    yield WORKERS / folder.FILE, [_kustomization([f"{name_of(queue)}.yaml" for queue in found])]
    namespace = yaml.safe_load((HERE / folder.FILE).read_text(encoding="utf-8"))["namespace"]
    for queue in found:
        made = manifests(queue, drain_s(bundle, queue.model_class), namespace)
        yield WORKERS / f"{name_of(queue)}.yaml", made


def _kustomization(resources: Sequence[str]) -> dict[str, Any]:
    return {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": list(resources)}


def _asks_prometheus(found: Sequence[Queue]) -> dict[str, Any]:
    address = {"kind": "ConfigMap", "name": "settings", "fieldPath": "data.PROMETHEUS_URL"}
    to = {"select": {"kind": "ScaledObject"}, "fieldPaths": ["spec.triggers.0.metadata.serverAddress"]}
    return {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [
            {
                "target": {"kind": "ScaledObject", "name": name_of(queue)},
                "patch": dumped([{"op": "replace", "path": "/spec/triggers/0", "value": prometheus(queue)}]),
            }
            for queue in found
        ],
        "replacements": [{"source": address, "targets": [to]}],
    }
