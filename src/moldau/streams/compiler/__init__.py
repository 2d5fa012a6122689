"""A topology as queries of Structured Streaming: SQL where Spark has it, Python where only the program knows."""
