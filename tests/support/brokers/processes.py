"""Broker processes: Moldau, Apache Kafka to compare with, or a broker that runs elsewhere.

Tests use all three in the same way: `.bootstrap` is the address.
"""

import base64
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import psutil

import moldau
from moldau.ensemble.ports import HOST, PORTS, free_ports
from support.brokers.fork_server import ForkedProcess, fork_server
from support.kafka import jvm

MOLDAU = [sys.executable, "-m", "moldau"]
READY_SECONDS = 60
STOP_SECONDS = 60
TAIL_LINES = 60


def free_port() -> int:
    """A free port that no other process of this test run chooses."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    return free_ports(1, PORTS[worker::workers])[0]


def answers(port: int) -> bool:
    """Whether a broker on `port` answers ApiVersions v0, written out by hand."""
    request = struct.pack(">hhih", 18, 0, 7, -1)
    try:
        with socket.create_connection((HOST, port), timeout=2) as peer:
            peer.sendall(struct.pack(">i", len(request)) + request)
            head = peer.recv(8, socket.MSG_WAITALL)
            return len(head) == 8 and head[4:] == struct.pack(">i", 7)
    except OSError:
        return False


def broker_environment() -> dict[str, str]:
    """Environment for a child process that runs the same Moldau as the tests."""
    source = str(Path(moldau.__file__).parents[1])
    inherited = os.environ.get("PYTHONPATH")
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (source, inherited))), "PYTHONUNBUFFERED": "1"}


class ExternalBroker:
    """A broker that was started elsewhere: it can be used, not restarted."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.log_file: Path | None = None
        self.pid: int | None = None

    def log_text(self) -> str:
        return ""


def start_process(
    command: list[str], environment: dict[str, str], log: IO[bytes]
) -> subprocess.Popen[bytes] | ForkedProcess:
    """Start a process that writes to `log`. `moldau` is forked from one that has imported everything, if possible."""
    if command[: len(MOLDAU)] == MOLDAU and fork_server().suits(environment):
        with open(os.devnull, "rb") as nothing:
            return fork_server().start(
                command[len(MOLDAU) :], environment, nothing.fileno(), log.fileno(), log.fileno()
            )
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)


class BrokerProcess:
    """A Moldau broker as a child process, with its own port and directory."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None, port: int | None = None) -> None:
        self.directory = directory
        self.data = directory / "data"
        self.settings = {name: str(value) for name, value in (settings or {}).items()}
        self.port = port or free_port()
        self.log_file = directory / "broker.log"
        self.process: subprocess.Popen[bytes] | ForkedProcess | None = None
        directory.mkdir(parents=True, exist_ok=True)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self.process.pid if self.process else None

    def command(self) -> list[str]:
        given = [part for name, value in self.settings.items() for part in ("--set", f"{name}={value}")]
        where = ["--dir", str(self.data), "--listen", self.bootstrap]
        return [*MOLDAU, "broker", *where, *given]

    def environment(self) -> dict[str, str]:
        return broker_environment()

    def start(self) -> "BrokerProcess":
        """Start it and wait until it answers; its output is appended to `log_file`."""
        with self.log_file.open("ab") as log:
            self.process = start_process(self.command(), self.environment(), log)
        deadline = time.monotonic() + READY_SECONDS
        while not (answers(self.port) and self.listens()):
            code = self.process.poll()
            if code is not None:
                raise RuntimeError(f"the broker ended with code {code} instead of starting:\n{self.tail()}")
            if time.monotonic() > deadline:
                self.kill()
                raise RuntimeError(f"the broker did not answer within {READY_SECONDS} s:\n{self.tail()}")
            time.sleep(0.05)
        return self

    def listens(self) -> bool:
        """Whether this process owns the port, and not another one that took it first."""
        own = psutil.Process(self.pid).net_connections("tcp")
        return any(each.status == psutil.CONN_LISTEN and each.laddr.port == self.port for each in own)

    def stop(self) -> None:
        """Shut down cleanly: SIGTERM, then the process must exit with a clean code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the broker did not stop within {STOP_SECONDS} s:\n{self.tail()}") from None
        self.process = None
        assert code in self.clean_exit_codes(), f"the broker stopped with code {code}:\n{self.tail()}"

    def clean_exit_codes(self) -> frozenset[int]:
        return frozenset({0})

    def kill(self) -> None:
        """kill -9, like a crash."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def restart(self) -> None:
        self.stop()
        self.start()

    def close(self) -> None:
        """End the process in whatever state the test left it."""
        if self.process is not None:
            if self.process.poll() is not None:
                code, self.process = self.process.returncode, None
                raise AssertionError(f"the broker had ended by itself with code {code}:\n{self.tail()}")
            self.stop()

    def log_text(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    def tail(self) -> str:
        return "\n".join(self.log_text().splitlines()[-TAIL_LINES:])


class ApacheKafkaProcess(BrokerProcess):
    """Apache Kafka instead of Moldau: a test of Moldau should pass on it too."""

    def __init__(self, directory: Path, settings: Mapping[str, object] | None = None, port: int | None = None) -> None:
        super().__init__(directory, settings, port)
        self.controller_port = free_port()
        self.properties = directory / "server.properties"

    def command(self) -> list[str]:
        java, path = jvm.java(), jvm.classpath()
        if java is None or path is None:
            raise RuntimeError(jvm.why_missing())
        self.write_properties()
        if not (self.data / "meta.properties").exists():
            self.format()
        return [java, "-Xmx512m", "-cp", path, "kafka.Kafka", str(self.properties)]

    def write_properties(self) -> None:
        plain, controller = f"PLAINTEXT://{HOST}:{self.port}", f"CONTROLLER://{HOST}:{self.controller_port}"
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{HOST}:{self.controller_port}",
            "listeners": f"{plain},{controller}",
            "advertised.listeners": plain,
            "controller.listener.names": "CONTROLLER",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            **self.settings,
        }
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))

    def format(self, *more: str) -> None:
        cluster = base64.urlsafe_b64encode(b"\1" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
        done = jvm.run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(self.properties), *more)
        assert done.returncode == 0, done.stdout + done.stderr

    def clean_exit_codes(self) -> frozenset[int]:
        return frozenset({0, 143})  # a JVM that ends by SIGTERM reports 128 + 15


AnyBroker = BrokerProcess | ExternalBroker
StartBroker = Callable[..., BrokerProcess]  # the fixture start_broker: settings by name → a running broker
CreateTopic = Callable[..., str]  # the fixture create_topic: partitions, configs → the topic's name
