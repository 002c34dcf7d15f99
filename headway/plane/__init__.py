"""The embedded plane: Kafka, Valkey and Headway's services as child processes of one supervisor."""
