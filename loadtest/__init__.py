"""Load tests: `python -m loadtest SCENARIO`. They measure, and print; none of them is a pass/fail test."""
