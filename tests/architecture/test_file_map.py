"""ARCHITECTURE.md has a line about every file, and none about a file that is gone."""

import re

from support.sources import PACKAGE, ROOT, SOURCES

ROW = re.compile(r"^\| `([\w/]+\.py)` \| (.+) \|$", re.MULTILINE)
ROOM = re.compile(r"^### ([\w/]+)$", re.MULTILINE)


def file_map() -> str:
    return (ROOT / "ARCHITECTURE.md").read_text().partition("\n## File map\n")[2]


def test_every_file_has_a_line() -> None:
    files = {str(path.relative_to(PACKAGE)) for path in SOURCES}
    folders = {name.removesuffix("/__init__.py") for name in files if name.endswith("/__init__.py")}
    listed = [name for name, _ in ROW.findall(file_map())]
    assert sorted(listed) == sorted(name for name in files if not name.endswith("/__init__.py"))
    assert sorted(ROOM.findall(file_map())) == sorted(folders)


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
