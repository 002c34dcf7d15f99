"""What a process carries: nine of them start at once on a small machine."""

import subprocess
import sys

import pytest

HEAVY = ("cel_expr_python", "jsonschema", "referencing", "yaml", "faststream", "httpx", "typer")
"""Expressions, schemas, files, clients and commands: for who compiles, reads or serves them."""


@pytest.mark.parametrize("service", ["worker", "autoscaler", "host"])
def test_a_service_that_compiles_nothing_imports_no_compiler(service: str) -> None:
    found = f"import sys, services.{service}.app; print(*({{*{HEAVY}}} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", found], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == []
