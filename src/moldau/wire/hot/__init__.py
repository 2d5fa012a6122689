"""Hand-written codecs of Produce and Fetch, the two APIs where a microsecond per partition counts."""
