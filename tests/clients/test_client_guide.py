"""docs/client.md, and the client in README.md: their Python snippets run, in their order, on a real broker."""

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest

from moldau import AsyncConsumer, AsyncProducer, Consumer, Producer
from support.brokers.processes import StartBroker
from support.guides import Block, blocks
from support.repository.sources import ROOT

GUIDE = "docs/client.md"
SPARK = "moldau.spark"  # whose guide has its own test
TRACING = importlib.util.find_spec("opentelemetry") is not None  # an extra, which the extra dev has


def run(snippets: list[Block], bootstrap: str) -> None:
    names: dict[str, Any] = {"__name__": "guide"}
    for snippet in snippets:
        if TRACING or "telemetry" not in snippet.text:
            snippet.with_changes({"localhost:9092": bootstrap}).run(names)


def test_every_language_is_known() -> None:
    assert {block.language for block in blocks(GUIDE)} == {"python", "sh", "properties"}


def test_methods_of_the_tables_exist() -> None:
    """Snippets run; tables do not."""
    own, others = (ROOT / GUIDE).read_text().split("## Coming from")
    rows = [line for line in own.splitlines() if line.startswith("| ")]
    rows += [line.split("|", 2)[2] for line in others.splitlines() if line.startswith("| ")]  # without theirs
    named = {found for row in rows for found in re.findall(r"(?<![\w.])(consumer|producer)\.(\w+)\(", row)}
    assert len(named) >= 15
    kinds = {"consumer": (Consumer, AsyncConsumer), "producer": (Producer, AsyncProducer)}
    assert [f"{who}.{name}" for who, name in sorted(named) for kind in kinds[who] if not hasattr(kind, name)] == []


def test_snippets_of_the_guide_do_what_it_says(
    start_broker: StartBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    broker = start_broker(group_initial_rebalance_delay_ms=0)
    snippets = [block for block in blocks(GUIDE) if block.language == "python"]
    assert len(snippets) >= 20
    run(snippets, broker.bootstrap)


def test_snippets_of_the_readme_work(start_broker: StartBroker) -> None:
    broker = start_broker(group_initial_rebalance_delay_ms=0)
    snippets = [block for block in blocks("README.md") if block.language == "python" and SPARK not in block.text]
    assert len(snippets) >= 5
    run(snippets, broker.bootstrap)
