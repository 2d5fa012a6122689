"""Compaction: keeps the last record of each key. Choice of the log, key map, rewriting and swapping of segments."""
