"""Load tests: `python -m loadtest SCENARIO`. They measure and print; some hold the plane to a promise: exit 1."""
