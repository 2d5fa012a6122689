"""Commands that messages suggest, with the options that lead to the same cluster as this command line did."""

import shlex
from collections.abc import Sequence
from contextvars import ContextVar

_before: ContextVar[tuple[str, ...]] = ContextVar("before", default=())
_after: ContextVar[tuple[str, ...]] = ContextVar("after", default=())


def remember(before: Sequence[str], after: Sequence[str]) -> None:
    """Repeat these options in suggestions, before and after the command."""
    _before.set(tuple(before))
    _after.set(tuple(after))


def suggest(words: str) -> str:
    """`moldau` with these words, as it has to be typed to reach the same cluster."""
    return " ".join(("moldau", *map(shlex.quote, _before.get()), words, *map(shlex.quote, _after.get())))
