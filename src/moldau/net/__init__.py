"""Sockets: listeners, connections and their channels, client connections to other brokers. Knows frames, no APIs."""
