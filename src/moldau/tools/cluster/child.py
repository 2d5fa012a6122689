"""A broker of `moldau cluster up`: a child process with its settings, its log, and how it ended."""

import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from moldau.client.direct.connection import Connection
from moldau.ensemble.guard import Guard
from moldau.tools.cluster.control import BrokerState
from moldau.tools.common.failure import FAILED, MISUSED, CommandError, note
from moldau.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

HOST = "localhost"
REPLICATION = 3  # of topics, where there are as many brokers
MIN_INSYNC = {3: "2"}  # by replication: one broker can be lost without losing records
START_S = 60.0
STOP_S = 60.0
ASK_S = 5.0
POLL_S = 0.05


class Child:
    """One broker's process, which can be started again."""

    def __init__(
        self, directory: Path, number: int, port: int, count: int, zookeeper: str, settings: Mapping[str, str]
    ) -> None:
        self.number = number
        self.port = port
        self.log = directory / f"broker-{number}.log"
        self.starts = 0
        self.problem = ""
        self._count = count
        replication = min(count, REPLICATION)
        self._settings = {
            "broker.id": str(number),
            "listeners": f"PLAINTEXT://{HOST}:{self.port}",
            "log.dirs": str(directory / f"broker-{number}"),
            "zookeeper.connect": zookeeper,
            "default.replication.factor": str(replication),
            "min.insync.replicas": MIN_INSYNC.get(replication, "1"),
            "offsets.topic.replication.factor": str(replication),
            "transaction.state.log.replication.factor": str(replication),
            **settings,
        }
        self._process: subprocess.Popen[bytes] | None = None
        self._guard: Guard | None = None

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process is not None and self.ended is None else None

    def state(self, *, ready: bool) -> BrokerState:
        return BrokerState(self.number, self.pid, self.starts, ready and self.pid is not None, self.problem)

    @property
    def ended(self) -> int | None:
        """Its exit code, if it has ended."""
        return self._process.poll() if self._process is not None else None

    def launch(self) -> None:
        options = [part for name, value in self._settings.items() for part in ("--set", f"{name}={value}")]
        try:
            log = open(self.log, "ab")  # noqa: SIM115 - closed below
        except OSError as error:
            raise CommandError(f"cannot write {self.log}: {(error.strerror or str(error)).lower()}") from error
        with log:
            # A process group of its own: Ctrl-C is for the parent, which stops one broker after the other.
            self._process = subprocess.Popen(
                [sys.executable, "-m", "moldau", "broker", *options],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                process_group=0,
            )
        self.starts += 1
        self._guard = Guard(self._process.pid)

    def await_ready(self, known: int | None = None) -> None:
        """Wait until it knows of so many brokers: of all, if not told otherwise."""
        until = time.monotonic() + START_S
        while self._known() < (self._count if known is None else known):
            if self.ended is not None:
                code = MISUSED if self.ended == MISUSED else FAILED  # a mistake in --set
                raise CommandError(f"broker {self.number} {self.how_ended()}", exit_code=code)
            if time.monotonic() > until:
                raise CommandError(f"broker {self.number} does not answer after {START_S:.0f} s. See {self.log}")
            time.sleep(POLL_S)

    def _known(self) -> int:
        """How many brokers this one knows of; 0 if it does not answer."""
        try:
            connection = Connection(HOST, self.port, client_id="moldau-cli", timeout_s=ASK_S)
            try:
                request = DescribeClusterRequest(include_cluster_authorized_operations=False)
                return len(connection.ask(request, DescribeClusterResponse).brokers)
            finally:
                connection.close()
        except OSError:
            return 0

    def _last_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return f"{lines[-1].strip().removeprefix('moldau: ') if lines else 'no log'} (see {self.log})"

    def how_ended(self) -> str:
        code = self.ended or 0
        if code < 0:
            return f"was ended by {signal.Signals(-code).name} (see {self.log})"
        return f"has ended with exit code {code}: {self._last_line()}"

    def stop(self) -> None:
        """Stop it in order, and kill it if it does not."""
        if self._process is not None and self.ended is None:
            self._process.terminate()
            try:
                self._process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                note(f"Broker {self.number} did not stop within {STOP_S:.0f} s; killing it.")
        self.kill()

    def kill(self) -> None:
        if self._process is not None and self.ended is None:
            self._process.kill()
            self._process.wait()
        if self._guard is not None:
            self._guard.dismiss()
