"""Sink of `format("moldau")`: rows to records, at least once or exactly once."""
