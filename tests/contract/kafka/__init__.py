"""One suite for both: what a service may expect of Kafka, whichever stands behind the port."""
