"""Idempotent producers that are programs of their own: Java's client in Kafka's VerifiableProducer, and franz-go.

Each prints a line of JSON per record when its outcome is known. Lines come in any order over partitions; they are told
in the order of the numbers, which is that of sending.
"""

import heapq
import json
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from benchmarks import jars
from chaos.history import Acked, Failed, Send
from chaos.workloads.base import PATIENCE_S, Numbered, Setting

VERIFIABLE = "org.apache.kafka.tools.VerifiableProducer"
JAVA_SETTINGS = {
    "enable.idempotence": "true",
    "retries": "2147483647",
    "delivery.timeout.ms": "60000",  # KAFKA-14359: no broker takes a first batch that its successors overtook
    "request.timeout.ms": "5000",
    "retry.backoff.ms": "50",
    "metadata.max.age.ms": "5000",
}
JAVA_PREFIX = "1"  # VerifiableProducer takes a number
GO_SOURCE = Path(__file__).parents[2] / "tests" / "clients" / "go"


class Line(NamedTuple):
    """The outcome of one record. Where the program does not know its partition, it may be in any."""

    number: int
    value: str
    partition: int | None
    offset: int
    error: str


class Program(Numbered):
    def __init__(self, name: str, setting: Setting, command: list[str], parse: Callable[[str], Line | None]) -> None:
        super().__init__(name, setting)
        self._command = command
        self._parse = parse
        self._process: subprocess.Popen[str] | None = None
        self._early: list[Line] = []  # those whose predecessors are not known yet
        self._next = 0

    def work(self) -> None:
        with tempfile.TemporaryFile("w+") as errors:
            self._process = subprocess.Popen(self._command, stdout=subprocess.PIPE, stderr=errors, text=True)
            assert self._process.stdout is not None
            for text in self._process.stdout:
                line = self._parse(text)
                if line is not None:
                    self.acked += not line.error
                    self.failed += bool(line.error)
                    heapq.heappush(self._early, line)
                    self._tell_all_known()
            code = self._process.wait()
            errors.seek(0)
            if not self.ending.is_set():
                raise RuntimeError(f"{self.name} ended with {code}: {errors.read()[-500:]}")
        while self._early:
            self._tell_line(heapq.heappop(self._early))

    def stop(self) -> None:
        super().stop()
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def abandon(self) -> None:
        super().abandon()
        if self._process is not None and self._process.poll() is None:
            self._process.kill()

    def finish(self) -> None:
        try:
            if self._process is not None:
                self._process.wait(PATIENCE_S)
        finally:
            if self._process is not None and self._process.poll() is None:
                self._process.kill()
        super().finish()

    def _tell_all_known(self) -> None:
        while self._early and self._early[0].number == self._next:
            self._tell_line(heapq.heappop(self._early))
            self._next += 1

    def _tell_line(self, line: Line) -> None:
        topic = self.setting.topic
        places = self.setting.places if line.partition is None else [f"{topic}/{line.partition}"]
        for place in places:
            self.tell(Send, self.name, place, line.value)
            if line.error:
                self.tell(Failed, self.name, place, line.value, line.error)
        if not line.error:
            self.tell(Acked, self.name, places[0], line.value, line.offset)


def java(setting: Setting) -> Program:
    found = jars.obtain()
    assert not isinstance(found, str), found
    settings = Path(tempfile.mkdtemp(prefix="moldau-chaos-")) / "producer.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in JAVA_SETTINGS.items()))
    arguments = ["--bootstrap-server", setting.bootstrap, "--topic", setting.topic, "--value-prefix", JAVA_PREFIX]
    arguments += ["--throughput", str(int(setting.rate)), "--command-config", str(settings)]
    options = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return Program("java", setting, found.command(VERIFIABLE, *arguments, options=options), _java_line)


def _java_line(text: str) -> Line | None:
    told = json.loads(text)
    number = int(str(told.get("value", ".0")).rpartition(".")[2])
    match told["name"]:
        case "producer_send_success":
            return Line(number, told["value"], told["partition"], told["offset"], "")
        case "producer_send_error":
            return Line(number, told["value"], None, -1, told["message"] or told["exception"])
    return None


def go(setting: Setting) -> Program:
    arguments = [setting.bootstrap, setting.topic, str(setting.partitions), str(int(setting.rate)), str(setting.seed)]
    return Program("go", setting, [str(_built()), "steady", *arguments], _go_line)


def _go_line(text: str) -> Line:
    told = json.loads(text)
    return Line(told["Number"], f"go.{told['Number']}", told["Partition"], told["Offset"], told["Error"])


@cache
def _built() -> Path:
    program = Path(tempfile.mkdtemp(prefix="moldau-chaos-")) / "client"
    compiler = _compiler()
    assert compiler is not None
    command = [compiler, "build", "-buildvcs=false", "-o", str(program), "."]
    subprocess.run(command, cwd=GO_SOURCE, check=True, capture_output=True)
    return program


def _compiler() -> str | None:
    return shutil.which("go") or shutil.which("/usr/local/go/bin/go")


def missing_java() -> str:
    """Why there is no Java client, empty if there is one."""
    found = jars.obtain()
    return found if isinstance(found, str) else ""


def missing_go() -> str:
    return "" if _compiler() else "go is not installed; on Debian: apt-get install golang"
