"""What is wrong with a configuration, and where."""

from dataclasses import dataclass
from enum import StrEnum

Path = tuple[str | int, ...]
"""Keys and indices from the root of a document."""


class Severity(StrEnum):
    """Whether a configuration can be used in spite of a problem."""

    ERROR = "error"
    WARNING = "warning"


class ConfigError(Exception):
    """A configuration that cannot be used, or is not there: one line."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A problem as a check sees it: a place in a document, not yet in a file."""

    path: Path
    message: str
    hint: str = ""
    severity: Severity = Severity.ERROR
    offset: int = 0
    """Where in the text at `path`, in characters."""

    def under(self, prefix: Path) -> "Finding":
        """The same finding, seen from further out."""
        return Finding(prefix + self.path, self.message, self.hint, self.severity, self.offset)


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem as its author sees it."""

    file: str
    """Relative to the configuration folder; the pipeline's name where there are no files."""
    line: int | None
    """From 1; None where there are no files."""
    message: str
    hint: str = ""
    """How to mend it; perhaps empty."""
    severity: Severity = Severity.ERROR
    where: str = ""
    """The key, like `steps[2].timeout`."""

    def __str__(self) -> str:
        place = self.file if self.line is None else f"{self.file}:{self.line}"
        return f"{place}: {self.message}" + (f" ({self.hint})" if self.hint else "")


def dotted(path: Path) -> str:
    """`("steps", 2, "timeout")` → `steps[2].timeout`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path).removeprefix(".")


def has_errors(problems: list[Problem]) -> bool:
    """Whether a configuration with these problems must not be used."""
    return any(problem.severity is Severity.ERROR for problem in problems)
