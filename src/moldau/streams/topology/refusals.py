"""What a program cannot say, found when it is built."""

from moldau.streams.sql.errors import StreamsError


class TopologyRefused(StreamsError, ValueError):
    """An operator that does not fit: what, to which stream or table, why, and the nearest way that works."""
