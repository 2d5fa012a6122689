"""The partition log on disk, synchronous: segments, indexes, recovery, producer state. Knows nothing of replication."""
