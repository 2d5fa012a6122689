"""Committed offsets: commit, fetch, delete, expiration, and the bytes of their records. Pure."""
