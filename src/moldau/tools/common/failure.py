"""Failures of commands: exception, exit codes, lines on stderr. Light to import."""

import contextlib
import os
import sys
from collections.abc import Iterable

OK = 0
FAILED = 1
MISUSED = 2
INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command with one line: the problem and, if there is one, a remedy."""

    def __init__(self, message: str, *, remedy: str = "", exit_code: int = FAILED) -> None:
        super().__init__(f"{message.rstrip('.')}. {remedy}" if remedy else message)
        self.exit_code = exit_code


def misused(message: str, *, remedy: str = "") -> CommandError:
    """A mistake in the command line."""
    return CommandError(message, remedy=remedy, exit_code=MISUSED)


def tell_failure(message: str) -> None:
    """Write the one line of a failed command."""
    note(f"moldau: {' '.join(message.split())}")


def note(message: str) -> None:
    """Write a line to stderr, beside the command's output. A closed stderr is no error."""
    with contextlib.suppress(BrokenPipeError):
        print(message, file=sys.stderr)


def announce(lines: Iterable[str]) -> None:
    """Print the first lines of a command that goes on running. A closed stdout is no error."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """Discard all further output."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def split_pair(text: str, option: str) -> tuple[str, str]:
    """Split the `key=value` of an option."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise misused(f"{option} {text!r} is not of the form key=value")
    return key.strip(), value
