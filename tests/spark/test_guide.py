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
from typing import Any

import pytest

from support.brokers.processes import AnyBroker, broker_environment
from support.guides import blocks
from support.spark.registry import SmallRegistry, small_registry

GUIDE = "docs/spark.md"
FILE_NAME = re.compile(r"# (\w+\.py)\n")
SLOW = ("moldau spark pack", "moldau pipeline")
PAYMENT = {
    "type": "record",
    "name": "Payment",
    "fields": [{"name": "id", "type": "long"}, {"name": "amount", "type": "double"}],
}
FULL = bool(os.environ.get("MOLDAU_FULL"))


def test_every_language_is_known() -> None:
    assert {block.language for block in blocks(GUIDE)} == {"python", "sh", "text"}


@pytest.fixture
def registry() -> Iterator[SmallRegistry]:
    with small_registry() as found:
        found.register("payments-value", PAYMENT)
        yield found


def test_snippets_do_what_the_guide_says(
    spark: Any, broker: AnyBroker, registry: SmallRegistry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {"http://localhost:8081": registry.url, "localhost:9092": broker.bootstrap}
    places['"checkpoints/'] = f'"{tmp_path}/'
    names: dict[str, Any] = {"__name__": "guide"}
    ran = 0
    for block in blocks(GUIDE):
        block = block.with_changes(places)
        file = FILE_NAME.match(block.text)
        if block.language == "python" and file:
            block.compile()
            (tmp_path / file[1]).write_text(block.text)
        elif block.language == "python":
            ran += 1
            block.run(names)
        elif block.language == "sh":
            run_commands(block.text, broker)
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
