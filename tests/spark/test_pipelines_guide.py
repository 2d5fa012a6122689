"""docs/pipelines.md: its pipeline is planned, its programs run, and its commands have the options that they are given.

The command lines are parsed and not run: each would start a Spark. test_pipelines.py runs such commands.
"""

import shlex
import time
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from support.brokers.processes import AnyBroker
from support.guides import Block, blocks

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")

from moldau.spark.pipelines.directory import pipeline_directory
from moldau.spark.pipelines.interception import CHECKPOINTS, intercept_queries
from moldau.spark.pipelines.status import PipelineState, PipelineStatus, write_status
from moldau.tools.root import app

GUIDE = "docs/pipelines.md"
ELSEWHERE = "spark://HOST:7077"  # needs a cluster


def of(language: str) -> list[Block]:
    return [block for block in blocks(GUIDE) if block.language == language]


def test_its_pipeline_is_one(spark: Any, broker: AnyBroker, tmp_path: Path) -> None:
    names: dict[str, Any] = {}
    pipeline = next(block for block in of("python") if "def main(spark)" in block.text)
    pipeline.run(names)
    spark.conf.set(CHECKPOINTS, tmp_path.as_uri())
    try:
        with intercept_queries() as intercepted:
            names["main"](spark)
    finally:
        spark.conf.unset(CHECKPOINTS)
    (planned,) = intercepted.planned
    assert (planned.name, planned.writes.options["topic"]) == ("large-orders", "large-orders")


def test_its_programs_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    directory = pipeline_directory("./data", "orders")
    directory.path.mkdir(parents=True)
    write_status(directory, PipelineStatus("orders", "f", 1, "local", int(time.time() * 1000), PipelineState.STOPPED))
    programs = [block for block in of("python") if "def main(spark)" not in block.text]
    ran = [block for block in programs if ELSEWHERE not in block.text]
    for block in programs:
        block.compile()
    for block in ran:
        block.run({})
    assert len(ran) == 1
    assert "moldau_pipeline_state {'pipeline': 'orders', 'state': 'stopped'} 1.0" in capsys.readouterr().out


def test_its_commands_exist() -> None:
    lines = [line.partition("  #")[0].strip() for block in of("sh") for line in block.text.splitlines()]
    commands = [shlex.split(line)[1:] for line in lines if line.startswith("moldau ")]
    assert len(commands) >= 8
    for words in commands:
        parse(words)


def parse(words: list[str]) -> None:
    """Fails for an unknown command or option."""
    command: Any = get_command(app)
    context = command.context_class(command, info_name="moldau")
    while hasattr(command, "resolve_command"):
        name, command, words = command.resolve_command(context, words)
        context = command.context_class(command, parent=context, info_name=name)
    command.make_context(context.info_name, words, parent=context.parent)
