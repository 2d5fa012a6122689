"""HTTP services beside the broker: the schema registry, and what else speaks HTTP. They reach brokers over the wire."""
