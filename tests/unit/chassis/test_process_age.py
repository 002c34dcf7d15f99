"""A start is counted from the process's own beginning."""

import subprocess
import sys
import time

import psutil
import pytest

from services.chassis.process_age import process_age_s


def test_it_is_what_the_system_says() -> None:
    assert process_age_s() == pytest.approx(time.time() - psutil.Process().create_time(), abs=1.5)


def test_it_counts_what_was_before_any_of_our_code() -> None:
    code = (
        "import time; time.sleep(0.3); began = time.monotonic();"
        "from services.chassis.process_age import process_age_s;"
        "print(process_age_s() - (time.monotonic() - began))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert float(told.stdout) >= 0.29
