"""Expressions of Streams: types, parsing with checks, evaluation in Python, and the text that Spark gets."""
