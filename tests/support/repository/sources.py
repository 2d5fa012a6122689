"""The repository's files, for tests that read the code instead of running it."""

import ast
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PACKAGE = ROOT / "src" / "moldau"
SOURCES = sorted(PACKAGE.rglob("*.py"))


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def shown(path: Path) -> str:
    """A path relative to the repository."""
    return str(path.relative_to(ROOT))


@cache
def tracked() -> list[Path]:
    """Every text file under version control."""
    try:
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs git and a checkout: clone the repository instead of unpacking an archive")
    names = listed.stdout.decode().rstrip("\0").split("\0")
    return [path for name in names if (path := ROOT / name).is_file() and b"\0" not in path.read_bytes()]
