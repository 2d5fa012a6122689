"""A small blocking client for bulk work: reads offset ranges, writes batches, commits offsets, ends transactions."""
