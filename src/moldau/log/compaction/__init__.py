"""Compaction: of each key the last record stays. What is due, the key map, the rewrite, and the exchange of files."""
