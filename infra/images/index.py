"""Has every function that prepares something do it now, in the home given as argument, for workers to find it."""

import sys
from importlib import import_module
from pathlib import Path

for file in sorted(Path("functions").glob("*.py")):
    if "def warm_up(" in file.read_text(encoding="utf-8"):
        import_module(file.stem).warm_up(Path(sys.argv[1]))
