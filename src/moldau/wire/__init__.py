"""Kafka's wire format, pure: frames, headers, messages, batches, records. No sockets, no clock."""
