"""Confirmation of commands that delete, and the option that gives it beforehand."""

import sys
from typing import Annotated

import typer

from moldau.tools.common.failure import CommandError, misused

Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


def require_yes(doing: str, question: str) -> None:
    """Raise CommandError unless the question is answered with yes; `doing` names the command in errors."""
    if not sys.stdin.isatty():
        raise misused(f"{doing} needs confirmation, and there is no terminal", remedy="Add --yes")
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was changed")
