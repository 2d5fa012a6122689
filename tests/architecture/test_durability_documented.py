"""Every guarantee in docs/durability.md names tests that exist."""

import ast
import re

from support.repository.sources import ROOT

PAGE = (ROOT / "docs" / "durability.md").read_text()
NAMED = re.compile(r"`(tests/[a-z_/]+\.py)::(test_[a-z0-9_]+)`(?: with `([^`]+)`)?")


def test_the_tests_exist() -> None:
    named = NAMED.findall(PAGE)
    assert len(named) > 15
    for path, function, promise in named:
        source = (ROOT / path).read_text()
        names = {node.name for node in ast.walk(ast.parse(source)) if isinstance(node, ast.FunctionDef)}
        assert function in names, f"{path} has no {function}"
        assert not promise or f'"{promise}": Promise(' in source, f"{path} has no promise {promise}"


def test_every_promise_is_on_the_page() -> None:
    promises = re.findall(
        r'^    "([^"]+)": Promise\(', (ROOT / "tests/properties/test_power_cuts.py").read_text(), re.M
    )
    assert promises
    assert {promise for _, _, promise in NAMED.findall(PAGE) if promise} == set(promises)
