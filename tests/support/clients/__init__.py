"""Clients for tests: raw connections, confluent-kafka, the command line, the Go program."""
