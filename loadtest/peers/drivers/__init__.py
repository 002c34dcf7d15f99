"""One program for each system: it sets the system up, makes the same calls on it, and takes it down again."""
