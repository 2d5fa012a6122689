"""`moldau pipeline` as a process, with a data directory of its own."""

import json
import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from support.brokers.processes import MOLDAU
from support.clients.cli import succeed

PATIENCE_S = 240
SMALL = ("--master", "local[2]", "--conf", "spark.driver.memory=600m")


class Pipelines:
    """The command, with a data directory of its own."""

    def __init__(self, folder: Path, bootstrap: str, python_path: str) -> None:
        self.folder = folder
        self.environment = {**os.environ, "PYTHONPATH": python_path, "MOLDAU_BOOTSTRAP": bootstrap, "COLUMNS": "80"}

    def write(self, name: str, text: str) -> str:
        (self.folder / name).write_text(text)
        return str(self.folder / name)

    def command(self, *words: str) -> list[str]:
        return [*MOLDAU, "pipeline", words[0], "--dir", str(self.folder / "data"), *words[1:]]

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, check=False, timeout=PATIENCE_S, env=self.environment
        )

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        command = self.command("run", *SMALL, *words)
        return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=self.environment)

    def status(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(succeed(self.run("status", name, "--json")))[0]
        return found

    def has_begun(self, name: str) -> bool:
        """By its record, which is asked often while Spark starts: a command each time would take its processor."""
        record = self.folder / "data" / "pipelines" / name / "record.json"
        return record.exists() and json.loads(record.read_text())["state"] == "running"


def await_true(holds: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "it did not come true in time"
        assert process is None or process.poll() is None, process.communicate()
        time.sleep(0.2)
