"""The two brokers as processes: started, watched from the outside (CPU, memory) and stopped. Generates no load."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import psutil

import moldau
from benchmarks import frames
from benchmarks.jars import KAFKA_VERSION, Jars
from moldau.ensemble.ports import HOST, free_ports

READY_POLL_S = 0.005
READY_LIMIT_S = 120.0
STOP_LIMIT_S = 60.0
LINUX_SCHED_CLOCK = 2  # clock_getcpuclockid(3): the id of a process's clock is ~pid and this kind

CLUSTER = "bW9sZGF1LWJlbmNobWFyaw"  # the cluster id of Apache Kafka: any 16 bytes in base 64

# What Kafka's own start script passes, so that it is measured as its users run it.
KAFKA_JVM = (
    "-Xmx1g", "-Xms1g", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent",
)  # fmt: skip


SETTINGS = {  # of both
    "log.segment.delete.delay.ms": "1000",  # the files of a round are gone before the next begins
    "group.initial.rebalance.delay.ms": "0",  # a rebalance takes as long as its work does, not as its timers:
    "group.consumer.assignment.interval.ms": "0",  # of the classic and of the consumer protocol
}


class Kind(Protocol):
    """How to prepare and start one kind of broker."""

    @property
    def name(self) -> str: ...

    @property
    def version(self) -> str: ...

    def prepare(self, home: Path, port: int) -> None:
        """Prepare the first start; not part of the start-up time."""

    def command(self, home: Path, port: int) -> list[str]: ...


def _environment() -> dict[str, str]:
    """Our environment without a developer's switch that makes Python recompile everything."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def _listeners(port: int, others: Mapping[str, int]) -> str:
    return ",".join(f"{protocol}://{HOST}:{each}" for protocol, each in {"PLAINTEXT": port, **others}.items())


@dataclass(frozen=True, slots=True)
class Moldau:
    settings: Mapping[str, str] = field(default_factory=dict)
    listeners: Mapping[str, int] = field(default_factory=dict)  # beside PLAINTEXT: security protocol → port
    name: str = "Moldau"
    version: str = moldau.__version__

    def prepare(self, home: Path, port: int) -> None:
        (home / "data").mkdir()

    def command(self, home: Path, port: int) -> list[str]:
        settings = {"listeners": _listeners(port, self.listeners), **SETTINGS, **self.settings}
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        return [sys.executable, "-m", "moldau", "broker", "--dir", str(home / "data"), *given]


@dataclass(frozen=True, slots=True)
class ApacheKafka:
    jars: Jars
    settings: Mapping[str, str] = field(default_factory=dict)
    listeners: Mapping[str, int] = field(default_factory=dict)  # beside PLAINTEXT: security protocol → port
    name: str = "Apache Kafka"
    version: str = KAFKA_VERSION

    def prepare(self, home: Path, port: int) -> None:
        controller, listeners = free_port(), _listeners(port, self.listeners)
        protocols = {"PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", **{name: name for name in self.listeners}}
        settings = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{name}:{each}" for name, each in protocols.items()),
            "log.dirs": str(home / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **SETTINGS,
            **self.settings,
        }
        properties = home / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        format_storage(self.jars, properties)

    def command(self, home: Path, port: int) -> list[str]:
        return self.jars.command("kafka.Kafka", str(home / "server.properties"), options=KAFKA_JVM)


@dataclass(frozen=True, slots=True)
class Started:
    """A kind of broker that is started in another way: subclasses change its command."""

    kind: Kind

    @property
    def name(self) -> str:
        return self.kind.name

    @property
    def version(self) -> str:
        return self.kind.version

    def prepare(self, home: Path, port: int) -> None:
        self.kind.prepare(home, port)

    def command(self, home: Path, port: int) -> list[str]:
        return self.kind.command(home, port)


@dataclass(frozen=True, slots=True)
class FromSource(Started):
    """Moldau of another source tree, such as yesterday's."""

    source: Path

    @property
    def version(self) -> str:
        return f"of {self.source}"

    def command(self, home: Path, port: int) -> list[str]:
        return ["/usr/bin/env", f"PYTHONPATH={self.source}", *self.kind.command(home, port)]


def format_storage(jars: Jars, properties: Path) -> None:
    """Format Apache Kafka's directories before its first start."""
    arguments = ("format", "--cluster-id", CLUSTER, "--config", str(properties))
    command = jars.command("kafka.tools.StorageTool", *arguments)
    subprocess.run(command, check=True, capture_output=True)


@dataclass(slots=True)
class Peer:
    """One broker process and its directory; it can be stopped and started again on the same data."""

    label: str
    kind: Kind
    home: Path
    port: int
    ready_limit_s: float = READY_LIMIT_S
    ready_s: float = 0.0
    _began: float = field(default=0.0, repr=False)
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def address(self) -> tuple[str, int]:
        return HOST, self.port

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def data(self) -> Path:
        return self.home / "data"

    @property
    def pid(self) -> int:
        assert self._process is not None, f"{self.label} is not running"
        return self._process.pid

    def cpu_seconds(self) -> float:
        return cpu_seconds(self.pid)

    def rss_bytes(self) -> int:
        return int(psutil.Process(self.pid).memory_info().rss)

    def pss_bytes(self) -> int:
        """Resident memory, with each page that processes share divided among them."""
        return int(psutil.Process(self.pid).memory_full_info().pss)

    def disk_read_bytes(self) -> int:
        """Bytes read from the disk, without the page cache."""
        return int(psutil.Process(self.pid).io_counters().read_bytes)

    def open_files(self) -> int:
        return int(psutil.Process(self.pid).num_fds())

    def start(self) -> float:
        """Starts the process, waits until it answers ApiVersions, and returns the seconds that took."""
        self.launch()
        return self.await_ready()

    def launch(self) -> None:
        """Start the process without waiting: a broker of a cluster may need the others to get ready."""
        with (self.home / "output.log").open("ab") as output:
            self._began = time.perf_counter()
            self._process = subprocess.Popen(
                self.kind.command(self.home, self.port),
                stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True, env=_environment(),
            )  # fmt: skip

    def await_ready(self) -> float:
        assert self._process is not None, f"{self.label} is not running"
        while not frames.answers(self.address):
            if self._process.poll() is not None or time.perf_counter() - self._began > self.ready_limit_s:
                raise RuntimeError(f"{self.label} ({self.kind.name}) did not start: {self._last_words()}")
            time.sleep(READY_POLL_S)
        self.ready_s = time.perf_counter() - self._began
        return self.ready_s

    def stop(self) -> None:
        """A clean shutdown, or a kill if that takes too long."""
        if self._process is None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(STOP_LIMIT_S)
        finally:
            self.kill()

    def kill(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._process = None

    def _last_words(self) -> str:
        lines = (self.home / "output.log").read_text(errors="replace").strip().splitlines()
        return " / ".join(lines[-5:]) or "no output"


def cpu_seconds(pid: int) -> float:
    """User and system time of all threads of a process since its start."""
    if sys.platform == "linux":  # the process's own CPU clock, because /proc counts in steps of 10 ms
        return time.clock_gettime(~pid << 3 | LINUX_SCHED_CLOCK)
    times = psutil.Process(pid).cpu_times()
    return float(times.user + times.system)


@contextlib.contextmanager
def running(kind: Kind, workdir: Path, label: str, *, ready_limit_s: float = READY_LIMIT_S) -> Iterator[Peer]:
    """A broker on a fresh directory under `workdir`; process and directory are always removed."""
    home = workdir / f"{label}-{free_port()}"
    home.mkdir(parents=True)
    peer = Peer(label, kind, home, free_port(), ready_limit_s)
    try:
        kind.prepare(home, peer.port)
        peer.start()
        yield peer
    finally:
        peer.kill()
        shutil.rmtree(home, ignore_errors=True)


def free_port() -> int:
    return free_ports(1)[0]
