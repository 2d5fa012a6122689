"""Clients of Moldau's own, over the wire layer: they work with any Kafka broker."""
