"""Requests under a seeded nemesis, then a checker over the clients' history and every record of the log."""
