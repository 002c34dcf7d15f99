"""Apache Kafka's jars: resolved once with jgo, then kept in a cache folder that all homes share.

`python jars.py FOLDER` fills the folder; it runs as a child process so that the resolver's imports never weigh on
the plane.
"""

import fcntl
import os
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

KAFKA_VERSION = "4.3.1"
# Resolved one by one: together, log4j's parent pom would replace Kafka's own dependencies (kafka-clients 3.9.1).
# Without log4j-slf4j-impl the broker logs nothing.
COORDINATES = (
    f"org.apache.kafka:kafka_2.13:{KAFKA_VERSION}",
    "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4",
)
LIST_FILE = "classpath"


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    """Where the jars live, below the user's cache folder."""
    root = environment.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "headway" / f"kafka-{KAFKA_VERSION}"


def cached_classpath(folder: Path) -> str | None:
    """The class path of a filled folder, or None."""
    try:
        names = (folder / LIST_FILE).read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return None
    jars = [folder / name for name in names]
    return os.pathsep.join(map(str, jars)) if all(jar.exists() for jar in jars) else None


def fill(folder: Path) -> None:
    """Resolves and copies the jars. Of several processes that call it at once, one works and the others wait."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if cached_classpath(folder) is None:
            _resolve(folder)


def _resolve(folder: Path) -> None:
    import jgo

    names: set[str] = set()
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        for coordinate in COORDINATES:
            for jar in jgo.build(coordinate, cache_dir=Path(scratch)).all_jars:
                shutil.copyfile(jar, folder / jar.name)
                names.add(jar.name)
    for cache in folder.glob("*.aot"):  # made from the jars that were just replaced
        cache.unlink()
    # The list is written last and in one step: a folder with a list is whole.
    partial = folder / f"{LIST_FILE}.partial"
    partial.write_text("\n".join(sorted(names)), encoding="utf-8")
    partial.replace(folder / LIST_FILE)


if __name__ == "__main__":
    try:
        fill(Path(sys.argv[1]))
    except Exception as error:  # whatever the resolver raises, people get one line
        sys.exit(f"{type(error).__name__}: {error}")
