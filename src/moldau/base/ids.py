"""Kinds of integers that many rooms share, and the values that stand for none."""

from typing import NewType

Millis = NewType("Millis", int)  # since the Unix epoch

NO_TIMESTAMP = Millis(-1)
