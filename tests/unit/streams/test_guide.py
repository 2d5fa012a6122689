"""docs/streams.md: its Python runs, in its order."""

import os
from pathlib import Path
from typing import Any

import pytest

from support.guides import blocks
from support.repository.sources import ROOT

GUIDE = "docs/streams.md"
PICTURE = ROOT / "docs" / "streams.svg"


def test_snippets_do_what_the_guide_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    ran = [block.run(names) for block in blocks(GUIDE) if block.language == "python"]
    assert len(ran) >= 8


def test_the_picture_is_that_of_the_first_program() -> None:
    """MOLDAU_RECORD=1 draws it again."""
    names: dict[str, Any] = {"__name__": "guide"}
    next(blocks(GUIDE)).run(names)
    if os.environ.get("MOLDAU_RECORD"):
        PICTURE.write_text(names["app"].svg())
    assert PICTURE.read_text() == names["app"].svg()
