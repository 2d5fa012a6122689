"""docs/files.md agrees with the docstrings; the pages about the code name no file, class or member that is gone."""

import ast
import re
from collections import defaultdict
from functools import cache

import pytest

from support.file_map import render
from support.repository.sources import PACKAGE, ROOT, SOURCES, parsed, shown

PAGES = (
    "ARCHITECTURE.md",
    "docs/invariants.md",
    "docs/glossary.md",
    *sorted(shown(path) for path in (ROOT / "docs" / "decisions").glob("0*.md")),
)


def test_the_file_map_is_up_to_date() -> None:
    assert (ROOT / "docs" / "files.md").read_text() == render(), "docs/files.md is out of date; run: make docs"


@pytest.mark.parametrize("page", PAGES)
def test_files_that_a_page_names_exist(page: str) -> None:
    """Files in backticks anywhere on the page, such as `net/connection.py`."""
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", (ROOT / page).read_text()))
    assert not sorted(name for name in named if not (PACKAGE / name).exists() and not (ROOT / name).exists())


@pytest.mark.parametrize("page", PAGES)
def test_functions_that_a_page_names_are_in_their_file(page: str) -> None:
    """A file and a function of it stand together as: `net/connection.py`, `Connection._flush`."""
    gone = []
    for name, place in re.findall(r"`((?:\w+/)+\w+\.py)`,\s+`([\w.]+)`", (ROOT / page).read_text()):
        source = (PACKAGE / name).read_text()
        if not all(re.search(rf"\b(?:class|def) {part}\b", source) for part in place.split(".")):
            gone.append(f"{place} in {name}")
    assert not gone


@pytest.mark.parametrize("page", PAGES)
def test_members_that_a_page_names_exist(page: str) -> None:
    """Classes and members of them in backticks anywhere on the page, such as `Log.append` or `Log.append(batch)`."""
    text = (ROOT / page).read_text()
    gone = []
    for name, member in re.findall(r"`([A-Z]\w+)\.(\w+)[^`]*`", text):
        if member not in members().get(name, ()):
            gone.append(f"{name}.{member}")
    assert not gone


def test_a_member_that_is_gone_is_noticed() -> None:
    assert "append" in members()["Log"]
    assert "_after_flush" not in members()["Partition"]


@cache
def members() -> dict[str, set[str]]:
    """Every class under src with its own and inherited methods and attributes; classes of one name count as one."""
    own: dict[str, set[str]] = defaultdict(set)
    bases: dict[str, set[str]] = defaultdict(set)
    for path in SOURCES:
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.ClassDef):
                own[node.name] |= names_in(node)
                bases[node.name] |= {base.id for base in node.bases if isinstance(base, ast.Name)}

    def inherited(name: str) -> set[str]:
        return own[name].union(*(inherited(base) for base in (bases[name] & own.keys()) - {name}))

    return {name: inherited(name) for name in list(own)}


def names_in(node: ast.ClassDef) -> set[str]:
    """What a class defines: functions, names in its body, attributes that its methods assign."""
    found = set()
    for part in node.body:
        match part:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                found.add(name)
            case ast.AnnAssign(target=ast.Name(name)):
                found.add(name)
            case ast.Assign(targets=targets):
                found |= {target.id for target in targets if isinstance(target, ast.Name)}
    for inner in ast.walk(node):
        match inner:
            case ast.Attribute(value=ast.Name("self"), attr=name, ctx=ast.Store()):
                found.add(name)
    return found
