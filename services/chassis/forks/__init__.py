"""Processes that are forked from one that has imported already what they import."""
