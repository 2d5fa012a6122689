"""Logs for tests: batches built by hand, histories of compacted logs, a disk that loses unsynced writes."""
