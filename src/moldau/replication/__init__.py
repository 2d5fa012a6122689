"""A partition joined to its log: leadership, high watermark, waiters."""
