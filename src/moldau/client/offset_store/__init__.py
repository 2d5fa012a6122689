"""Offsets in the user's own database, in the transaction that writes the output: exactly once, without Kafka's own."""
