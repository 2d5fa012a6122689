"""Run `moldau` in processes forked from one that has imported everything, which saves most of their processor time.

The server is `python -m support.clients.command_server`, and gets arguments, environment and open files over a socket.
It has no threads, so forking is safe, which it is not in a process that uses librdkafka.
"""

import gc
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, suppress
from pathlib import Path

LENGTH = struct.Struct("!I")
TESTS = Path(__file__).parents[2]


class CommandServer:
    """A server, and the connection to it. It ends when the connection does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._start()

    def _start(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        path = os.pathsep.join([str(TESTS), *filter(None, sys.path)])
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __name__, str(theirs.fileno())],
                env={
                    **os.environ,
                    "PYTHONPATH": path,
                    "COLUMNS": "80",
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                process_group=0,
            )

    def run(
        self, arguments: Sequence[str], stdin: str, environment: Mapping[str, str], timeout_s: float
    ) -> subprocess.CompletedProcess[str]:
        """Run one command to its end, as `subprocess.run` does."""
        request = json.dumps({"arguments": arguments, "environment": dict(environment), "directory": os.getcwd()})
        read_end, write_end = os.pipe()
        feeding = threading.Thread(target=_feed, args=(write_end, stdin.encode()))
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors, self._lock:
            data = request.encode()
            socket.send_fds(self._socket, [LENGTH.pack(len(data))], [read_end, out.fileno(), errors.fileno()])
            os.close(read_end)
            self._socket.sendall(data)
            feeding.start()
            self._socket.settimeout(timeout_s)
            try:
                code = int.from_bytes(self._socket.recv(4), "big", signed=True)
            except TimeoutError:
                self._restart()
                raise subprocess.TimeoutExpired(list(arguments), timeout_s) from None
            finally:
                feeding.join()
            out.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(list(arguments), code, out.read(), errors.read())

    def _restart(self) -> None:
        """Kill the server with its command: its late answer would be taken for that of the next command."""
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._socket.close()
        self._start()


def _feed(pipe: int, data: bytes) -> None:
    with open(pipe, "wb") as file:
        try:
            file.write(data)
            file.flush()
        except BrokenPipeError:  # the command did not want all of it
            file.raw.close()


def serve(connection: socket.socket) -> list[str] | None:
    """Fork for each request. Return the arguments in the child, and None in the server when the connection ends."""
    while True:
        head, files, _, _ = socket.recv_fds(connection, LENGTH.size, 3)
        if not head:
            return None
        request = json.loads(_receive(connection, LENGTH.unpack(head)[0]))
        child = os.fork()
        if not child:
            connection.close()
            for number, file in enumerate(files):
                os.dup2(file, number)
                os.close(file)
            os.environ.clear()
            os.environ.update(request["environment"])
            os.chdir(request["directory"])
            return list(request["arguments"])
        for file in files:
            os.close(file)
        _, status = os.waitpid(child, 0)
        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(4, "big", signed=True))


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        data += connection.recv(size - len(data))
    return data


def warm_up() -> None:
    """Import what commands import when they run, but start no thread: a thread would not survive a fork."""
    for package in ("moldau.tools", "confluent_kafka.admin", "asyncio"):
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
