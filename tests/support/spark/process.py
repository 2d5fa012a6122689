"""Spark drivers as separate processes, for other versions, other Pythons, and to be killed.

They run spark/programs/driver.py.
"""

import base64
import json
import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil

from support.clients.confluent import Record
from support.spark.processes import kill_all

PROGRAM = Path(__file__).parents[2] / "spark" / "programs" / "driver.py"
PATIENCE_S = 600  # a start takes seconds, but minutes on a busy machine
SMALL = {"spark.ui.enabled": "false", "spark.driver.memory": "600m", "spark.ui.showConsoleProgress": "false"}


class SparkFailed(Exception):
    """A command failed; the text is Spark's."""


class SparkProcess:
    """A driver that executes one command at a time. It ends with `close`, or at once with `kill`."""

    def __init__(
        self,
        log: Path,
        *,
        ours: bool = True,
        master: str = "local[2]",
        python: str = sys.executable,
        conf: Mapping[str, str] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.log = log
        settings = {"ours": ours, "master": master, "conf": {**SMALL, **(conf or {})}}
        with log.open("ab") as errors:
            self.process = subprocess.Popen(
                [python, str(PROGRAM), json.dumps(settings)],
                env=_environment(environment, None if ours else python),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                bufsize=0,
            )
        self.version = self._answer()["ready"]

    def ask(self, do: str, **more: Any) -> Any:
        """Execute one of the program's commands; raise SparkFailed with Spark's text if it fails."""
        self.tell(do, **more)
        return self.answer()

    def copy(
        self, bootstrap: str, topics: tuple[str, str], directory: Path, *, batch: int, form: str = "moldau", **sink: str
    ) -> None:
        """Start a stream from the first topic to the second, with `batch` records in a micro-batch."""
        where = {"kafka.bootstrap.servers": bootstrap}
        limits = {"maxOffsetsPerTrigger": str(batch), "startingOffsets": "earliest"}
        self.ask(
            "copy",
            format=form,
            source={**where, **limits, "subscribe": topics[0]},
            sink={**where, "topic": topics[1], **sink},
            checkpoint=str(directory / "checkpoint"),
        )

    def tell(self, do: str, **more: Any) -> None:
        """As `ask`, without waiting for the `answer`."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")

    def answer(self) -> Any:
        found = self._answer()
        if "failed" in found:
            raise SparkFailed(found["failed"])
        return found["answer"]

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        fd, line, deadline = self.process.stdout.fileno(), bytearray(), time.monotonic() + PATIENCE_S
        while not line.endswith(b"\n"):
            readable, _, _ = select.select([fd], [], [], max(deadline - time.monotonic(), 0))
            chunk = os.read(fd, 1 << 16) if readable else b""
            if not chunk:
                self.kill()
                raise SparkFailed(f"the driver gave no answer:\n{self.tail()}")
            line += chunk
        found: dict[str, Any] = json.loads(line)
        return found

    def family(self) -> list[psutil.Process]:
        """The driver, its JVM and their Python workers."""
        driver = psutil.Process(self.process.pid)
        return [driver, *driver.children(recursive=True)]

    def kill(self) -> None:
        """kill -9 all of them, like a lost machine."""
        if self.process.poll() is None:
            kill_all(self.family())
        self._forget()

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise
        self._forget()

    def _forget(self) -> None:
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe is not None
            pipe.close()

    def tail(self) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-60:])


def _environment(given: Mapping[str, str] | None, python: str | None) -> dict[str, str]:
    """Plain PySpark must be told which Python its workers use; our session knows."""
    found = {name: value for name, value in (given or os.environ).items() if name != "PYSPARK_PYTHON"}
    return {**found, "PYSPARK_PYTHON": python} if python else found


def records(rows: list[dict[str, Any]]) -> list[Record]:
    """Rows that the program printed, in the order of support.clients.confluent."""
    found = [
        Record(
            topic=row["topic"],
            partition=row["partition"],
            offset=row["offset"],
            key=_data(row["key"]),
            value=_data(row["value"]),
            timestamp_ms=row["timestamp_ms"],
            timestamp_type=row["timestampType"],
            headers=tuple((name, _data(value)) for name, value in row["headers"]),
        )
        for row in rows
    ]
    return sorted(found, key=lambda record: (record.topic, record.partition, record.offset))


def row(**values: Any) -> dict[str, Any]:
    """A row to write, with bytes encoded for the program."""
    return {name: _shown(value) for name, value in values.items()}


def _shown(value: Any) -> Any:
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, list):
        return [(name, _shown(each)) for name, each in value]
    return value


def _data(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
