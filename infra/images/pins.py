"""Prints the packages that pyproject.toml pins: the project's own and those of the extras given as arguments."""

import sys
import tomllib
from itertools import chain
from pathlib import Path

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
extras = chain.from_iterable(project["optional-dependencies"][extra] for extra in sys.argv[1:])
print(*project["dependencies"], *extras, sep="\n")
