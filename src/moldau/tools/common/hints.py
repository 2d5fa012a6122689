"""Commands that messages suggest, with the -b that this command line was given."""

import shlex
from contextvars import ContextVar

_bootstrap: ContextVar[str] = ContextVar("bootstrap", default="")


def remember_bootstrap(given: str | None) -> None:
    """Repeat this address in suggestions; None if the next command finds it by itself."""
    _bootstrap.set(given or "")


def suggest(words: str) -> str:
    """`moldau` with these words, as it has to be typed to reach the same cluster."""
    given = _bootstrap.get()
    return f"moldau {words} -b {shlex.quote(given)}" if given else f"moldau {words}"
