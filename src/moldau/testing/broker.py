"""Broker: a real broker in its own process, on a free port, with its data in a temporary directory."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from datetime import timedelta
from pathlib import Path
from types import TracebackType

PASSED = b"passed"  # the line after `pass_time`
READY = b"ready "  # the first line of `python -m moldau.testing.serve`, with the address
START_SECONDS = 30.0
STOP_SECONDS = 30.0


class BrokerFailed(Exception):
    """The broker did not start or stop cleanly; the text ends with its log."""


class Broker:
    """`with Broker() as broker: broker.bootstrap_servers` — stopped, and its data removed, at the end.

    Settings are Kafka's, with underscores for dots: `Broker(num_partitions=3)`; names with dots stay as they are. With
    `directory` the data is kept.
    `group_initial_rebalance_delay_ms` is 0 unless set, so a group's first member gets its partitions at once.
    """

    def __init__(self, directory: str | Path | None = None, **settings: object) -> None:
        self._own = Path(tempfile.mkdtemp(prefix="moldau-")) if directory is None else None
        self.directory = Path(directory) if directory is not None else self._own or Path()
        self._settings = {dotted(name): _text(value) for name, value in settings.items()}
        self._process: subprocess.Popen[bytes] | None = None
        self.bootstrap_servers = ""
        self._ahead_ms = 0

    def start(self) -> "Broker":
        """Start, or start again on the same data and the same port."""
        if self.alive:
            return self
        listeners = f"PLAINTEXT://{self.bootstrap_servers or '127.0.0.1:0'}"
        properties = {"listeners": listeners, "group.initial.rebalance.delay.ms": "0"} | self._settings
        command = [sys.executable, "-m", "moldau.testing.serve", f"log.dirs={self.directory}"]
        command += [f"{name}={value}" for name, value in properties.items()]
        command.append(f"clock.ahead.ms={self._ahead_ms}")
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with open(self._log, "ab") as log:
            # A separate process group: Ctrl-C goes to the test, which stops the broker.
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.PIPE, process_group=0
            )
        line = self._first_line(self._process)
        if not line.startswith(READY):
            self.kill()
            said = self.log_text()
            self._clean_up()
            raise BrokerFailed(f"the broker did not start:\n{said}")
        self.bootstrap_servers = line.removeprefix(READY).strip().decode()
        return self

    def stop(self) -> None:
        """Stop in order, as SIGTERM does."""
        process = self._process
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            code = process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"the broker did not stop within {STOP_SECONDS:.0f} s:\n{self.log_text()}") from None
        self._forget(process)
        if code:
            raise BrokerFailed(f"the broker ended with {code}:\n{self.log_text()}")

    def pass_time(self, span: timedelta) -> None:
        """Advance the broker's clock, and wait until it has done everything that is due, such as retention."""
        process = self._process
        if process is None or process.stdin is None:
            raise BrokerFailed("the broker is not running")
        span_ms = span // timedelta(milliseconds=1)
        self._ahead_ms += span_ms
        process.stdin.write(b"%d\n" % span_ms)
        process.stdin.flush()
        if not self._first_line(process).startswith(PASSED):
            raise BrokerFailed(f"the broker did not advance its clock:\n{self.log_text()}")

    def kill(self) -> None:
        """Kill the process, as `kill -9` does."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            self._forget(process)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, such as SIGSTOP."""
        os.kill(self.pid, number)

    def log_text(self) -> str:
        """The broker's log."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    @property
    def alive(self) -> bool:
        """Tell whether its process runs."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise BrokerFailed("the broker is not running")
        return self._process.pid

    @property
    def _log(self) -> Path:
        return self.directory.parent / f"{self.directory.name}.log"

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        self._process = None
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()

    @staticmethod
    def _first_line(process: subprocess.Popen[bytes]) -> bytes:
        assert process.stdout is not None
        fd = process.stdout.fileno()
        line, until = b"", time.monotonic() + START_SECONDS
        poll = select.poll()  # unlike select, works with any number of open files
        poll.register(fd, select.POLLIN)
        while not line.endswith(b"\n"):
            readable = poll.poll(max(until - time.monotonic(), 0) * 1000)
            chunk = os.read(fd, 4096) if readable else b""
            if not chunk:
                break
            line += chunk
        return line

    def __enter__(self) -> "Broker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.stop()
        finally:
            self._clean_up()

    def _clean_up(self) -> None:
        """Remove the data, if the directory is ours."""
        if self._own is not None:
            shutil.rmtree(self._own, ignore_errors=True)
            with contextlib.suppress(FileNotFoundError):
                self._log.unlink()


def dotted(name: str) -> str:
    """A setting's name from that of a parameter; one with dots is a setting's already."""
    return name if "." in name else name.replace("_", ".")


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
