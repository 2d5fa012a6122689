"""Pages of docs/ as programs: their fenced blocks, with the lines where they stand."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

from support.repository.sources import ROOT

FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    page: Path
    line: int
    language: str
    text: str

    def with_changes(self, changes: Mapping[str, str]) -> "Block":
        """The same block with other addresses and paths."""
        text = self.text
        for old, new in changes.items():
            text = text.replace(old, new)
        return self._replace(text=text)

    def compile(self) -> CodeType:
        """Blank lines put the snippet where a traceback says it is."""
        return compile("\n" * self.line + self.text, str(self.page), "exec")

    def run(self, names: dict[str, Any]) -> None:
        exec(self.compile(), names)


def blocks(page: str) -> Iterator[Block]:
    """The fenced blocks of a page of docs/, or of the README."""
    path = ROOT / page
    text = path.read_text()
    for found in FENCED.finditer(text):
        yield Block(path, text.count("\n", 0, found.start(2)), found[1], found[2])
