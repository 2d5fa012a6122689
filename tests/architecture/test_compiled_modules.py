"""What mypyc does not allow between compiled and other modules shows here, not when a broker runs."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from support.repository.sources import ROOT, parsed

SOURCES = ROOT / "src"
LISTED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["moldau"]["compile"]["modules"]
COMPILED = {SOURCES / f"{name.replace('.', '/')}.py" for name in LISTED}
# Classes that mypyc leaves to Python: others may inherit from them.
PYTHON_BASES = {"NamedTuple", "Protocol", "Exception", "ValueError", "Enum", "IntEnum"}


def module_of(path: Path) -> str:
    return ".".join(path.relative_to(SOURCES).with_suffix("").parts)


def native_classes() -> set[str]:
    return {
        f"{module_of(path)}.{node.name}"
        for path in COMPILED
        for node in parsed(path).body
        if isinstance(node, ast.ClassDef) and not PYTHON_BASES & {ast.unparse(base) for base in node.bases}
    }


def inheriting(path: Path, natives: set[str]) -> Iterator[str]:
    tree = parsed(path)
    names = {
        each.asname or each.name: f"{node.module}.{each.name}"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom)
        for each in node.names
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            for base in node.bases:
                head, _, rest = ast.unparse(base).partition("[")[0].partition(".")
                full = f"{names.get(head, head)}.{rest}" if rest else names.get(head, head)
                if full in natives:
                    yield f"{path.relative_to(ROOT)}: {node.name} inherits from {full}"


def test_python_classes_do_not_inherit_from_compiled_ones() -> None:
    natives = native_classes()
    assert natives
    folders = (SOURCES, ROOT / "chaos", ROOT / "benchmarks", ROOT / "demo")
    others = [path for folder in folders for path in folder.rglob("*.py") if path not in COMPILED]
    found = [fault for path in others for fault in inheriting(path, natives)]
    assert not found, found
