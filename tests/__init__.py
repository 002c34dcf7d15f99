"""Imported before any test, in each process that runs some."""

import os
import sys

# The suite starts hundreds of interpreters. Where the environment forbids compiled modules, each of them compiles all
# that it imports: a plane then starts in twice the time.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
