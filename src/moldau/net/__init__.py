"""Sockets: listeners, connections, sendfile. Knows frames, not what is in them."""
