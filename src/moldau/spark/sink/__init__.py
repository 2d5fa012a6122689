"""Writing: rows of a query become records of topics, at least once or exactly once."""
