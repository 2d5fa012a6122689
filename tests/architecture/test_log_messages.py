"""Log lines begin with a capital, and every line that docs/log-messages.md quotes is one that the code writes."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from support.repository.sources import ROOT, SOURCES, parsed

PAGE = (ROOT / "docs" / "log-messages.md").read_text()
ROW = re.compile(r"^\| (WARNING|ERROR) \| `([^`]+)` \|", re.MULTILINE)
PLACEHOLDER = re.compile(r"%[-#0 +]*[\d.]*[a-z]")
LEVELS = {"info": "INFO", "warning": "WARNING", "error": "ERROR", "exception": "ERROR"}


def test_the_page_has_rows() -> None:
    assert len(ROW.findall(PAGE)) >= 20


@pytest.mark.parametrize(("level", "quoted"), ROW.findall(PAGE))
def test_a_quoted_line_is_in_the_code(level: str, quoted: str) -> None:
    found = {known for text, known in texts() if quoted.casefold() in text.casefold()}
    assert found, f"no line of the code says: {quoted}"
    assert found & {level, ""}, f"the level is {', '.join(sorted(found))}: {quoted}"


def test_log_lines_begin_with_a_capital() -> None:
    lines = [text for path in SOURCES for text, logged in texts_in(parsed(path)) if logged]
    assert len(lines) > 100
    assert [line for line in lines if line[0].islower()] == []


@cache
def texts() -> list[tuple[str, str]]:
    """Every text under src with `…` for what is filled in, and the level at which it is logged; "" where that is not
    seen.
    """
    return [each for path in SOURCES for each in texts_in(parsed(path))]


def texts_in(module: ast.Module) -> Iterator[tuple[str, str]]:
    logged: dict[ast.expr, str] = {}
    for node in ast.walk(module):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("logger"), attr=method), args=[first, *_]):
                logged[first] = LEVELS.get(method, "")
        match node:
            case ast.Constant(value=str(text)):
                yield PLACEHOLDER.sub("…", text), logged.get(node, "")
            case ast.JoinedStr(values=parts):
                yield "".join(part.value if isinstance(part, ast.Constant) else "…" for part in parts), ""
