"""Style rules of CONTRIBUTING that a program can check."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from support.repository.sources import ROOT, SOURCES, parsed, shown, tracked

FILE_LINES = 600  # a longer file holds two ideas
FUNCTION_LINES = 60  # a screen
UNFINISHED = re.compile("|".join(("TO" + "DO", "FIX" + "ME", "X" + "XX", "NotImpl" + "ementedError")))
CODE = (".py", ".go", ".java", ".sh", ".toml", ".md")

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(parsed(path)) if isinstance(node, Function))


def test_every_file_opens_by_saying_what_it_is() -> None:
    silent = [shown(path) for path in SOURCES if len(ast.get_docstring(parsed(path)) or "") < 10]
    assert not silent


def test_files_are_one_idea() -> None:
    lengths = {shown(path): len(path.read_text().splitlines()) for path in SOURCES}
    assert not {name: lines for name, lines in lengths.items() if lines > FILE_LINES}


def test_functions_fit_on_a_screen() -> None:
    long = []
    for path in SOURCES:
        for function in functions(path):
            lines = (function.end_lineno or 0) - function.lineno + 1
            if lines > FUNCTION_LINES:
                long.append(f"{shown(path)}:{function.lineno} {function.name} has {lines} lines")
    assert not long, "\n".join(long)


def test_nothing_is_left_unfinished() -> None:
    found = []
    for path in tracked():
        if path.suffix in CODE or path.name == "Makefile":
            for number, line in enumerate(path.read_text(errors="replace").splitlines(), start=1):
                if UNFINISHED.search(line):
                    found.append(f"{shown(path)}:{number} {line.strip()}")
    assert not found, "\n".join(found)


def test_no_error_is_swallowed() -> None:
    """An empty `except` hides errors; contextlib.suppress names those that may be ignored."""
    swallowed = [
        f"{shown(path)}:{node.lineno}"
        for path in tracked()
        if path.suffix == ".py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ExceptHandler) and all(isinstance(each, ast.Pass) for each in node.body)
    ]
    assert not swallowed, swallowed


def test_continuous_integration_runs_what_a_contributor_runs() -> None:
    script = ROOT / ".ci" / "run"
    assert re.search(r"^make test$", script.read_text(), re.MULTILINE)
    assert script.stat().st_mode & 0o111, ".ci/run is not executable"
