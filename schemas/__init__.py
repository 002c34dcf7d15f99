"""Contracts: every message, topic, error code, header, metric and configuration file of Headway.

This package imports pydantic and the standard library, nothing else. Read it in the order of a request:
``requests`` → ``events`` → ``joins`` → ``tasks`` → ``events`` again → ``responses`` → ``usage``.
"""
