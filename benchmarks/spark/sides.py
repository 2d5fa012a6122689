"""The two Sparks as processes: each a driver that takes one job after the other, watched from the outside.

CPU and memory are those of the whole tree: the driver's Python, its JVM, and Spark's Python workers. Knows no measures.
"""

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from benchmarks.spark.connector import VERSION as CONNECTOR_VERSION
from benchmarks.spark.connector import Connector

MASTER = "local[2]"
SPARK = {  # of both
    "spark.driver.memory": "2g",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
JOBS = Path(__file__).with_name("jobs.py")
LIMIT_S = 600.0
STOP_LIMIT_S = 20.0
SAMPLE_S = 0.1
MIB = 1 << 20
OTHERS = ("SPARK_", "PYSPARK_")  # environment variables for another Spark


class JobFailed(RuntimeError):
    """A job failed, timed out, or its Spark died: the round does not count."""


@dataclass(frozen=True, slots=True)
class Flavour:
    """Which Spark, and under which name it finds the source and sink that are measured."""

    label: str
    name: str
    python: Path
    format: str
    settings: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)
    driver: Path = JOBS


def ours() -> Flavour:
    import pyspark

    import moldau

    name = f"Moldau {moldau.__version__} with PySpark {pyspark.__version__}"
    return Flavour("ours", name, Path(sys.executable), "moldau", environment=_environment())


def theirs(connector: Connector) -> Flavour:
    """Nothing of ours is on its path."""
    environment = _environment() | {"PYSPARK_PYTHON": str(connector.python)}
    environment.pop("PYTHONPATH", None)
    settings = {"spark.jars": ",".join(str(jar) for jar in connector.jars)}
    name = f"Spark's connector {CONNECTOR_VERSION} with PySpark {CONNECTOR_VERSION}"
    return Flavour("theirs", name, connector.python, "kafka", settings, environment)


def _environment() -> dict[str, str]:
    left_out = (*OTHERS, "PYTHONDONTWRITEBYTECODE")
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)}


@dataclass(slots=True)
class Side:
    """A running driver. After a failure it is started anew with the next job."""

    flavour: Flavour
    workdir: Path
    start_s: float = 0.0
    _process: "subprocess.Popen[bytes] | None" = field(default=None, repr=False)
    _pending: bytes = b""

    @property
    def label(self) -> str:
        return self.flavour.label

    def start(self) -> None:
        """Until Spark has given its first result."""
        given = {"format": self.flavour.format, "master": MASTER, "spark": SPARK | self.flavour.settings}
        self._pending = b""
        with (self.workdir / f"{self.label}.log").open("ab") as log:
            began = time.perf_counter()
            self._process = subprocess.Popen(
                [str(self.flavour.python), "-P", str(self.flavour.driver), json.dumps(given)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, start_new_session=True,
                env=self.flavour.environment, cwd=self.workdir,
            )  # fmt: skip
        self._answer()
        self.start_s = time.perf_counter() - began

    def run(self, job: str, **arguments: Any) -> dict[str, Any]:
        """What the job answers, with the CPU seconds of the tree meanwhile (`cpu_s`)."""
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        before = self.cpu_seconds()
        line = json.dumps({"job": job, "workdir": str(self.workdir), **arguments})
        try:
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()
        except OSError as failure:
            self.kill()
            raise JobFailed(f"{self.label} is gone: {failure}") from failure
        answer = self._answer()
        if "error" in answer:
            raise JobFailed(f"{self.label}, {job}: {answer['error']}")
        return answer | {"cpu_s": self.cpu_seconds() - before}

    def _answer(self) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdout is not None
        deadline = time.monotonic() + LIMIT_S
        while b"\n" not in self._pending:
            ready, _, _ = select.select([self._process.stdout], [], [], max(0.0, deadline - time.monotonic()))
            read = os.read(self._process.stdout.fileno(), 1 << 16) if ready else b""
            if not read:
                self.kill()
                raise JobFailed(f"{self.label} {'died' if ready else 'took too long'}: {self._last_words()}")
            self._pending += read
        line, _, self._pending = self._pending.partition(b"\n")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def cpu_seconds(self) -> float:
        """User and system time of all processes of the tree, those that have ended included."""
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                total += sum(process.cpu_times()[:4])  # own, and those of children that were waited for
        return total

    def memory_mb(self) -> float:
        """Resident memory of the tree; pages that several share are counted once (PSS), where the system tells."""
        total = 0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                full = process.memory_full_info()
                total += getattr(full, "pss", full.rss)
        return total / MIB

    def python_processes(self) -> int:
        """Processes of Python: the driver, and all that Spark has started."""
        count = 0
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                count += process.name().startswith("python")
        return count

    @contextlib.contextmanager
    def watched(self) -> Iterator[list[float]]:
        """Samples of the tree's memory meanwhile; the largest is the peak."""
        samples = [self.memory_mb()]
        done = threading.Event()

        def sample() -> None:
            while not done.wait(SAMPLE_S):
                samples.append(self.memory_mb())

        watcher = threading.Thread(target=sample)
        watcher.start()
        try:
            yield samples
        finally:
            done.set()
            watcher.join()

    def stop(self) -> None:
        """Spark ends when its input does; a kill if that takes too long."""
        if self._process is not None and self._process.stdin is not None:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_LIMIT_S)
        self.kill()

    def kill(self) -> None:
        tree = self._tree()
        for process in tree:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        if self._process is not None:
            self._process.wait()
        self._process = None

    def _tree(self) -> list[Any]:
        if self._process is None:
            return []
        try:
            top = psutil.Process(self._process.pid)
            return [top, *top.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def _last_words(self) -> str:
        lines = (self.workdir / f"{self.label}.log").read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-5:]) or "no output"


@contextlib.contextmanager
def running(flavour: Flavour, workdir: Path) -> Iterator[Side]:
    """A driver of its own; it and all its processes are gone afterwards, whatever happens."""
    side = Side(flavour, workdir)
    try:
        side.start()
        yield side
    finally:
        side.stop()
