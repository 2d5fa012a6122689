"""docs/files.md is what the docstrings say, and ARCHITECTURE.md names no file, class or function that is gone."""

import re

from support.file_map import render
from support.repository.sources import PACKAGE, ROOT


def test_the_file_map_is_up_to_date() -> None:
    assert (ROOT / "docs" / "files.md").read_text() == render(), "docs/files.md is out of date; run: make docs"


def test_what_the_walks_name_exists() -> None:
    """Files in backticks anywhere on the page, such as `net/connection.py`."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    named = set(re.findall(r"`((?:\w+/)+\w+\.py)`", page))
    assert not sorted(name for name in named if not (PACKAGE / name).exists())


def test_functions_that_the_walks_name_exist() -> None:
    """A file and a function of it stand together as: `net/connection.py`, `Connection._flush`."""
    page = (ROOT / "ARCHITECTURE.md").read_text()
    gone = []
    for name, place in re.findall(r"`((?:\w+/)+\w+\.py)`,\s+`([\w.]+)`", page):
        source = (PACKAGE / name).read_text()
        if not all(re.search(rf"\b(?:class|def) {part}\b", source) for part in place.split(".")):
            gone.append(f"{place} in {name}")
    assert not gone
