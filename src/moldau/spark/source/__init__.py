"""Source of `format("moldau")`: batch and streaming reads, from brokers directly into Arrow."""
