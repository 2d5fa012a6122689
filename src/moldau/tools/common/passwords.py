"""Passwords of commands: from a file, from standard input, or typed. Never an argument: anyone can list processes."""

import getpass
import sys
from pathlib import Path
from typing import Annotated

import typer

from moldau.tools.common.failure import misused

LONGEST = 64 * 1024  # bytes

PasswordFile = Annotated[
    str | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="Read the password from a file's first line, - for stdin.",
        show_default="typed, or the first line of stdin",
    ),
]


def read_password(user: str, file: str | None) -> str:
    """The password of a user; typed twice on a terminal."""
    if file is not None and file != "-":
        try:
            with Path(file).open("rb") as opened:
                return _first_line(opened.read(LONGEST))
        except OSError as problem:
            raise misused(f"cannot read --password-file {file}: {problem.strerror}") from None
    if file == "-" or not sys.stdin.isatty():
        return _first_line(sys.stdin.buffer.read(LONGEST))
    typed = getpass.getpass(f"Password of {user}: ")
    if typed != getpass.getpass("Again: "):
        raise misused("the two passwords differ")
    return typed


def _first_line(data: bytes) -> str:
    try:
        return data.decode().partition("\n")[0].removesuffix("\r")
    except UnicodeDecodeError:
        raise misused("the password is not UTF-8") from None
