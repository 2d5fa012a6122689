"""Compaction: keeps the last record of each key. What to clean, the key map, the rewriting and the replacement."""
