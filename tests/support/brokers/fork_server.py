"""Start `moldau` in processes forked from one that has imported everything, which saves most of their processor time.

The server is `python -m support.brokers.fork_server`, and gets arguments, environment and open files over a socket. It
has no threads, so forking is safe, which it is not in a process that uses librdkafka. It is the parent of what it
starts, and tells how each process ended through a pipe. When its connection ends, so do its processes.
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import select
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from functools import cache
from pathlib import Path

LENGTH = struct.Struct("!I")
CODE = struct.Struct("!i")  # a process id, and how a process ended
TESTS = Path(__file__).parents[2]
READ_AT_START = ("MOLDAU_COMPILE", "PYTHON")  # variables that a process cannot change after its imports


class ForkedProcess:
    """A process of the server, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, pid: int, arguments: Sequence[str], ended: int) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._arguments = arguments
        self._ended = ended

    def poll(self) -> int | None:
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            poll = select.poll()  # unlike select, works with any number of open files
            poll.register(self._ended, select.POLLIN)
            if not poll.poll(None if timeout is None else timeout * 1000):
                raise subprocess.TimeoutExpired(list(self._arguments), timeout or 0)
            told = os.read(self._ended, CODE.size)
            self.returncode = CODE.unpack(told)[0] if told else -signal.SIGKILL  # the server is gone, with all others
            os.close(self._ended)
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


class ForkServer:
    """A server, and the connection to it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
        self.environment = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "COLUMNS": "80"}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    def start(
        self, arguments: Sequence[str], environment: Mapping[str, str], stdin: int, stdout: int, stderr: int
    ) -> ForkedProcess:
        """Start `moldau` with these arguments and open files."""
        request = {"arguments": arguments, "environment": dict(environment), "directory": os.getcwd()}
        data = json.dumps(request).encode()
        ended, theirs = os.pipe()
        try:
            with self._lock:
                socket.send_fds(self._socket, [LENGTH.pack(len(data))], [stdin, stdout, stderr, theirs])
                self._socket.sendall(data)
                pid = CODE.unpack(_receive(self._socket, CODE.size))[0]
        finally:
            os.close(theirs)
        return ForkedProcess(pid, arguments, ended)

    def run(
        self, arguments: Sequence[str], stdin: str, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, as `subprocess.run` does."""
        read_end, write_end = os.pipe()
        feeding = threading.Thread(target=_feed, args=(write_end, stdin.encode()))
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
            process = self.start(arguments, environment, read_end, out.fileno(), errors.fileno())
            os.close(read_end)
            feeding.start()
            try:
                code = process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            finally:
                feeding.join()
            out.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, out.read(), errors.read())

    def close(self) -> None:
        """End the server, and with it everything that it started."""
        self._socket.close()
        self._process.wait()

    def suits(self, environment: Mapping[str, str]) -> bool:
        """Whether a process with this environment may be forked: what it imports depends on some variables."""

        def read(variables: Mapping[str, str]) -> dict[str, str]:
            chosen = {name: value for name, value in variables.items() if name.startswith(READ_AT_START)}
            return {**chosen, "PYTHONPATH": "", "PYTHONUNBUFFERED": ""}

        return read(environment) == read(self.environment)


@cache
def fork_server() -> ForkServer:
    """One for all tests of this process."""
    return ForkServer()


def _feed(pipe: int, data: bytes) -> None:
    with open(pipe, "wb") as file:
        try:
            file.write(data)
            file.flush()
        except BrokenPipeError:  # the command did not want all of it
            file.raw.close()


# ── the server ──


def serve(connection: socket.socket) -> list[str] | None:
    """Fork for each request. Return the arguments in the child, and None in the server when the connection ends."""
    running: dict[int, int] = {}  # process → the pipe that tells how it ended
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([connection.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _reap(running)
        if connection.fileno() not in ready:
            continue
        head, files, _, _ = socket.recv_fds(connection, LENGTH.size, 4)
        if not head:
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            return None
        request = json.loads(_receive(connection, LENGTH.unpack(head)[0]))
        *standard, ended = files
        child = os.fork()
        if not child:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            connection.close()
            for other in (woken, wake, ended, *running.values()):
                os.close(other)
            for number, file in enumerate(standard):
                os.dup2(file, number)
                os.close(file)
            os.environ.clear()
            os.environ.update(request["environment"])
            os.chdir(request["directory"])
            return list(request["arguments"])
        running[child] = ended
        for file in standard:
            os.close(file)
        connection.sendall(CODE.pack(child))


def _reap(running: dict[int, int]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        ended = running.pop(pid)
        with suppress(BrokenPipeError):
            os.write(ended, CODE.pack(os.waitstatus_to_exitcode(status)))
        os.close(ended)


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise EOFError("the other end is gone")
        data += part
    return data


def warm_up() -> None:
    """Import what commands and brokers import when they run, but start no thread: it would not survive a fork."""
    for package in ("moldau.tools", "moldau.broker", "confluent_kafka.admin", "asyncio", "uvloop", "sqlite3"):
        found = importlib.import_module(package)
        for module in pkgutil.walk_packages(found.__path__, f"{package}.") if package.startswith("moldau") else ():
            importlib.import_module(module.name)
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere), suppress(SystemExit):
        importlib.import_module("moldau.tools.main").run(["topic", "list", "--output", "nonsense"])  # parses options


def main() -> None:
    warm_up()
    gc.freeze()  # a child that collects garbage when it ends would copy every page
    arguments = serve(socket.socket(fileno=int(sys.argv[1])))
    if arguments is not None:
        sys.argv = ["moldau", *arguments]
        runpy.run_module("moldau", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
