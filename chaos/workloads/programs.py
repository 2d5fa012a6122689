"""Clients that are separate programs: Java in Kafka's VerifiableProducer and VerifiableConsumer, and franz-go.

An idempotent producer prints a line of JSON per record when its outcome is known. Lines of different partitions come in
any order; they are recorded in the order of the numbers, which is that of sending. A reader prints a line per record.
"""

import heapq
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from benchmarks import jars
from chaos.history import Acked, Failed, Send
from chaos.workloads import go_program
from chaos.workloads.base import PATIENCE_S, Numbered, Reader, Setting, Workload
from chaos.workloads.errors import is_hard_in_java

VERIFIABLE = "org.apache.kafka.tools.Verifiable"  # followed by Producer or Consumer
JAVA_SETTINGS = {
    "enable.idempotence": "true",
    "retries": "2147483647",
    "delivery.timeout.ms": "60000",  # KAFKA-14359: brokers reject a first batch that was overtaken by its successors
    "batch.size": "500",  # the producer changes partition after this many bytes, so all are used soon
    "request.timeout.ms": "5000",
    "retry.backoff.ms": "50",
    "metadata.max.age.ms": "5000",
}
JAVA_READING = {
    "isolation.level": "read_committed",
    "request.timeout.ms": "5000",
    "default.api.timeout.ms": "15000",
    "retry.backoff.ms": "50",
    "metadata.max.age.ms": "5000",
    "fetch.max.wait.ms": "100",
}
JAVA_PREFIX = "1"  # VerifiableProducer expects a number


class Line(NamedTuple):
    """The outcome of one record. If the program does not know the partition, it may be any."""

    number: int
    value: str
    partition: int | None
    offset: int
    error: str
    hard: bool = False


class Program(Workload):
    """Runs a program and reads every line of its output."""

    def __init__(self, name: str, setting: Setting, command: list[str]) -> None:
        super().__init__(name, setting)
        self._command = command
        self._process: subprocess.Popen[str] | None = None

    def hear(self, text: str) -> None:
        """Handle a line of its standard output."""

    def work(self) -> None:
        with tempfile.TemporaryFile("w+") as errors:
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=os.environ | self.setting.access.go,
            )
            assert self._process.stdout is not None
            for text in self._process.stdout:
                self.hear(text)
            code = self._process.wait()
            errors.seek(0)
            if not self.ending.is_set():
                raise RuntimeError(f"{self.name} ended with {code}: {errors.read()[-500:]}")

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


class ProgramProducer(Program, Numbered):
    def __init__(self, name: str, setting: Setting, command: list[str], parse: Callable[[str], Line | None]) -> None:
        super().__init__(name, setting, command)
        self._parse = parse
        self._early: list[Line] = []  # lines that arrived before their predecessors
        self._next = 0

    def hear(self, text: str) -> None:
        line = self._parse(text)
        if line is not None:
            self.acked += not line.error
            self.failed += bool(line.error)
            heapq.heappush(self._early, line)
            self._tell_all_known()

    def work(self) -> None:
        super().work()
        while self._early:
            self._tell_line(heapq.heappop(self._early))

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
                self.tell(Failed, self.name, place, line.value, line.error, False, line.hard)
        if not line.error:
            self.ends[line.partition or 0] = max(self.ends[line.partition or 0], line.offset + 1)
            self.tell(Acked, self.name, places[0], line.value, line.offset)


class JavaReader(Program, Reader):
    """Java's client in Kafka's VerifiableConsumer: the only member of its group; commits what it reads."""

    def hear(self, text: str) -> None:
        told = json.loads(text)
        match told["name"]:
            case "partitions_assigned":
                self.stands_at(-1)  # the committed offset, which it does not print
            case "record_data":
                self.took(told["partition"], [(told["offset"], told["value"])])
            case "offsets_committed" if not told["success"]:
                self.erred(f"commit: {told['error']}", hard=False)  # after an error that it cannot handle it exits


class GoReader(Program, Reader):
    """franz-go, assigned to all partitions from the beginning."""

    def work(self) -> None:
        self.stands_at(0)
        super().work()

    def hear(self, text: str) -> None:
        told = json.loads(text)
        if told["Error"]:
            self.erred(told["Error"], hard=told["Hard"])
        else:
            self.took(told["Partition"], [(told["Offset"], told["Value"])])


def java(setting: Setting) -> ProgramProducer:
    command = _java_command(setting, "Producer", JAVA_SETTINGS)
    command += ["--throughput", str(int(setting.rate)), "--value-prefix", JAVA_PREFIX]
    return ProgramProducer("java", setting, command, _java_line)


def java_reader(name: str, setting: Setting) -> JavaReader:
    command = _java_command(setting, "Consumer", JAVA_READING)
    command += ["--group-id", name, "--reset-policy", "earliest", "--session-timeout", "6000", "--verbose"]
    return JavaReader(name, setting, command)


def _java_command(setting: Setting, what: str, settings: dict[str, str]) -> list[str]:
    found = jars.obtain()
    assert not isinstance(found, str), found
    file = Path(tempfile.mkdtemp(prefix="moldau-chaos-")) / "client.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in (settings | setting.access.java).items()))
    arguments = [
        "--bootstrap-server",
        setting.access.bootstrap,
        "--topic",
        setting.topic,
        "--command-config",
        str(file),
    ]
    options = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
    return found.command(VERIFIABLE + what, *arguments, options=options)


def _java_line(text: str) -> Line | None:
    told = json.loads(text)
    number = int(str(told.get("value", ".0")).rpartition(".")[2])
    match told["name"]:
        case "producer_send_success":
            return Line(number, told["value"], told["partition"], told["offset"], "")
        case "producer_send_error":
            hard = is_hard_in_java(told["exception"])
            return Line(number, told["value"], None, -1, f"{told['exception']}: {told['message']}", hard)
    return None


def go(setting: Setting) -> ProgramProducer:
    arguments = [
        setting.access.bootstrap,
        setting.topic,
        str(setting.partitions),
        str(int(setting.rate)),
        str(setting.seed),
    ]
    return ProgramProducer("go", setting, [str(go_program.build()), "steady", *arguments], _go_line)


def go_reader(name: str, setting: Setting) -> GoReader:
    command = [str(go_program.build()), "follow", setting.access.bootstrap, setting.topic, str(setting.partitions)]
    return GoReader(name, setting, command)


def _go_line(text: str) -> Line:
    told = json.loads(text)
    number, value = told["Number"], f"go.{told['Number']}"
    return Line(number, value, told["Partition"], told["Offset"], told["Error"], told["Hard"])


def missing_java() -> str:
    """Why there is no Java client; empty if there is one."""
    found = jars.obtain()
    return found if isinstance(found, str) else ""
