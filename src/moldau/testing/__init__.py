"""A real broker inside a test."""
