"""Asks before something is lost for good."""

import sys

import typer

from moldau.tools.common.failure import CommandError, misused


def require_yes(doing: str, question: str) -> None:
    """Ends the command unless somebody at the terminal says yes; `doing` names it for those who have no terminal."""
    if not sys.stdin.isatty():
        raise misused(f"{doing} needs a yes, and there is no terminal to ask on", remedy="Add --yes")
    if not typer.confirm(question, err=True):
        raise CommandError("nothing was changed")
