"""docs/schemas.md: its files are written and its commands and snippets run, in their order."""

import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

from support.brokers.processes import AnyBroker
from support.clients.cli import runner
from support.guides import blocks
from support.services.registry import RegistryProcess

GUIDE = "docs/schemas.md"


def test_every_language_is_known() -> None:
    assert {block.language for block in blocks(GUIDE)} == {"json", "python", "sh", "text"}


def test_the_guide_does_what_it_says(registry: RegistryProcess, broker: AnyBroker, tmp_path: Path) -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    files = iter(("order.avsc", "order-2.avsc"))
    run = 0
    for found in blocks(GUIDE):
        block = found.with_changes({"http://localhost:8081": registry.url})
        if block.language == "json":
            json.loads(block.text)
            (tmp_path / next(files)).write_text(block.text)
        elif block.language == "python":
            block.run(names)
        elif block.language == "sh":
            for line in block.text.splitlines():
                execute(line, registry, broker, tmp_path)
                run += 1
    assert run >= 12
    assert next(files, None) is None


def execute(line: str, registry: RegistryProcess, broker: AnyBroker, directory: Path) -> None:
    words = shlex.split(line)
    if words[0] == "moldau":
        words = [str(directory / word) if word.endswith(".avsc") else word for word in words[1:]]
        done = runner(broker.bootstrap)(*words, "--registry", registry.url)
        assert done.returncode == 0, (line, done.stderr)
    else:
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, (line, done.stderr)
        assert "error_code" not in done.stdout, (line, done.stdout)
