"""Programs of Streams for tests, and golden cases."""
