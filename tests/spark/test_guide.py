"""docs/spark.md: its snippets run, in their order, against a real broker.

Python that begins with a file's name (`# revenue.py`) is written to that file; other Python is run. Of shell
blocks the commands of moldau are run, those that take long with MOLDAU_FULL=1 only.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from support.brokers.processes import AnyBroker, broker_environment

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"
FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE_NAME = re.compile(r"# (\w+\.py)\n")
SLOW = ("moldau spark pack", "moldau pipeline")
FULL = bool(os.environ.get("MOLDAU_FULL"))


class Block(NamedTuple):
    line: int
    language: str
    text: str


def blocks() -> Iterator[Block]:
    guide = GUIDE.read_text()
    for found in FENCED.finditer(guide):
        yield Block(guide.count("\n", 0, found.start(2)), found[1], found[2])


def test_every_language_is_known() -> None:
    assert {block.language for block in blocks()} == {"python", "sh", "text"}


def test_snippets_do_what_the_guide_says(
    spark: Any, broker: AnyBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "guide"}
    ran = 0
    for block in blocks():
        text = block.text.replace("localhost:9092", broker.bootstrap).replace('"checkpoints/', f'"{tmp_path}/')
        file = FILE_NAME.match(text)
        if block.language == "python" and file:
            compile(text, str(GUIDE), "exec")
            (tmp_path / file[1]).write_text(text)
        elif block.language == "python":
            ran += 1
            # Blank lines put the snippet where a traceback says it is.
            exec(compile("\n" * block.line + text, str(GUIDE), "exec"), names)
        elif block.language == "sh":
            run_commands(text, broker)
    assert ran >= 10
    assert Path("revenue.py").exists()
    spark.conf.set("spark.sql.shuffle.partitions", 2)  # the guide's session has become the one of all tests
    if FULL:
        run([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_revenue.py"], broker)


def run_commands(text: str, broker: AnyBroker) -> None:
    for line in text.splitlines():
        command = line.partition("  #")[0].strip()
        if command.startswith("moldau ") and (FULL or not command.startswith(SLOW)):
            run([sys.executable, "-m", *shlex.split(command)], broker)


def run(command: list[str], broker: AnyBroker) -> None:
    environment = {**broker_environment(), "MOLDAU_BOOTSTRAP": broker.bootstrap}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert done.returncode == 0, f"{shlex.join(command)}\n{done.stdout}\n{done.stderr}"
