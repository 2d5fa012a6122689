"""Imports between rooms (import-linter, contracts in pyproject.toml), and rules for pure rooms."""

import ast
import subprocess
import sys
from pathlib import Path

from support.repository.sources import PACKAGE, ROOT, SOURCES, parsed, shown

PURE = (
    *("base", "wire", "security", "schemas", "metadata", "groups", "transactions"),
    *("streams/sql", "streams/topology", "streams/operators", "streams/interpreter"),
)
PURE_FILES = ("log/validate.py",)
IMPURE_CALLS = {"open", "print", "input", "uuid1", "uuid4", "now", "today", "urandom"}


def pure_sources() -> list[Path]:
    rooms = [PACKAGE / name for name in PURE]
    return [path for path in SOURCES if any(path.is_relative_to(room) for room in rooms)] + [
        PACKAGE / name for name in PURE_FILES
    ]


def test_imports_point_down() -> None:
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    done = subprocess.run(
        [*command, "--config", "pyproject.toml", "--no-cache", "--no-logo"],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT / "src"), "PYTHONUTF8": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_pure_rooms_wait_for_nothing_and_ask_nobody() -> None:
    faults = []
    for path in pure_sources():
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
                faults.append(f"{shown(path)}:{node.lineno} is asynchronous")
            if isinstance(node, ast.Call) and _called(node) in IMPURE_CALLS:
                faults.append(f"{shown(path)}:{node.lineno} calls {_called(node)}")
    assert not faults, "\n".join(faults)


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def test_an_init_file_says_what_its_folder_is_and_does_nothing() -> None:
    faults = []
    for path in SOURCES:
        if path.name == "__init__.py":
            body = parsed(path).body[1:]  # after the docstring, which another test requires
            for node in body:
                name = node.targets[0] if isinstance(node, ast.Assign) else None
                constant = isinstance(name, ast.Name) and name.id in ("__all__", "__version__")
                if not constant and not isinstance(node, ast.ImportFrom):
                    faults.append(f"{shown(path)}:{node.lineno}")
    assert not faults, faults


def test_every_folder_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert not [shown(folder) for folder in folders if not (folder / "__init__.py").exists()]
