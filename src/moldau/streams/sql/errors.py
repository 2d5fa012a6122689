"""What is wrong with a schema or an expression, and with the record that one was evaluated for."""

from collections.abc import Iterable
from difflib import get_close_matches


class StreamsError(Exception):
    """Base of all errors of Streams: what happened, to what, and what to do."""


class SqlRefused(StreamsError, ValueError):
    """A schema or an expression that is not understood, with the place in its text."""

    def __init__(self, reason: str, text: str = "", position: int = 0) -> None:
        shown = f"{reason}\n  {text}\n  {' ' * position}^" if text else reason
        super().__init__(shown)
        self.reason = reason
        self.text = text
        self.position = position


class EvaluationFailed(StreamsError):
    """An expression has no value for this record, as in Spark: 1 / 0, cast('x' as int), a sum beyond bigint."""


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`; did you mean amount?`, or what there is."""
    names = sorted(known)
    close = get_close_matches(name, names, 1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; there are {', '.join(names)}" if names else ""
