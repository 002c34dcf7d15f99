"""Kafka as the services see it: a small port, its aiokafka adapter, its in-memory twin, and the stream runtime."""
