"""One file a scenario; each has `run(context) -> dict` with the keys that are its own."""
