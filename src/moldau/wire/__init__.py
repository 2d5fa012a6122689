"""Kafka's wire format: frames, headers, messages, record batches, records. Pure: no sockets, no clock."""
