"""How a command ends, and what it says besides its output: exception, exit codes, lines for people. Nothing heavy."""

import contextlib
import os
import sys
from collections.abc import Iterable

OK = 0
FAILED = 1
MISUSED = 2
INTERRUPTED = 130


class CommandError(Exception):
    """Ends the command with one line: what went wrong and, where there is a remedy, what to do next."""

    def __init__(self, message: str, *, remedy: str = "", exit_code: int = FAILED) -> None:
        super().__init__(f"{message.rstrip('.')}. {remedy}" if remedy else message)
        self.exit_code = exit_code


def misused(message: str, *, remedy: str = "") -> CommandError:
    """A failure that lies in what was typed."""
    return CommandError(message, remedy=remedy, exit_code=MISUSED)


def tell_failure(message: str) -> None:
    """Writes the one line that a failed command leaves behind."""
    note(f"moldau: {' '.join(message.split())}")


def note(message: str) -> None:
    """Says something to the person at the terminal that is not the command's output. Nobody need be there."""
    with contextlib.suppress(BrokenPipeError):
        print(message, file=sys.stderr)


def announce(lines: Iterable[str]) -> None:
    """What a command that goes on running says first. It goes on, too, if nobody reads that."""
    try:
        print("\n".join(lines), flush=True)
    except BrokenPipeError:
        discard_output()


def discard_output() -> None:
    """From now on nobody reads what is printed."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def split_pair(text: str, option: str) -> tuple[str, str]:
    """Splits the `key=value` that an option was given."""
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise misused(f"{option} {text!r} is not of the form key=value")
    return key.strip(), value
