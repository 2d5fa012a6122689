"""`moldau log check`: check the log directories of a stopped broker. The checks are in `verify`."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from moldau.tools.common.options import Output
from moldau.tools.common.output import counted
from moldau.tools.log.verify import CannotCheck, Finding, Tally, verify

EXIT_WRONG = 1
EXIT_UNREADABLE = 2


def check(
    context: typer.Context,
    directories: Annotated[
        list[Path], typer.Argument(metavar="DIR…", help="The directories in log.dirs of a broker that is stopped.")
    ],
    output: Annotated[
        Output | None, typer.Option("--output", "-o", help="Lines for people, one JSON object per line for programs.")
    ] = None,
) -> None:
    """Read every log and its indexes; report damage, and how the next start would repair it.

    Changes nothing. Exit code 1: something is wrong. Exit code 2: a directory is missing, unreadable, in use, or has no
    logs.
    """
    try:
        tally = verify(directories)
    except CannotCheck as problem:
        raise typer.Exit(_complain(str(problem))) from None
    except OSError as problem:
        raise typer.Exit(_complain(f"{problem.filename}: {problem.strerror}")) from None
    wanted = output or getattr(context.obj, "output", Output.TABLE)
    show = _show_json if wanted == Output.JSON else _show_lines
    show(tally)
    raise typer.Exit(EXIT_WRONG if any(finding.wrong for finding in tally.findings) else 0)


def _complain(problem: str) -> int:
    print(f"moldau: {problem}", file=sys.stderr)
    return EXIT_UNREADABLE


def _show_lines(tally: Tally) -> None:
    for finding in tally.findings:
        print(f"{'wrong' if finding.wrong else 'note'}: {finding.path}: {finding.problem}")
        print(f"       at the next start: {finding.remedy}")
    wrong = sum(finding.wrong for finding in tally.findings)
    size = tally.bytes / 1_000_000
    found = f"{counted(tally.logs, 'log')}, {counted(tally.segments, 'segment')}, {size:,.1f} MB"
    print(f"{found}: {wrong or 'nothing'} wrong")


def _show_json(tally: Tally) -> None:
    for finding in tally.findings:
        print(json.dumps(_document(finding)))


def _document(finding: Finding) -> dict[str, object]:
    return {**finding._asdict(), "path": str(finding.path)}
