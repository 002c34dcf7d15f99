"""The configuration: folders that people write, revisions on a topic, and what a service makes of the current one."""
