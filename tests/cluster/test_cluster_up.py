"""`moldau cluster up`: one command, several brokers; the same directory goes on where it stopped."""

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.brokers.processes import free_port
from support.clients.cli import Run, fail, runner, start, succeed


@contextmanager
def running(directory: Path, port: int, zookeeper_port: int, *arguments: str) -> Iterator[Run]:
    bootstrap = f"localhost:{port}"
    places = ("--dir", str(directory), "--port", str(port), "--zookeeper-port", str(zookeeper_port))
    process = start(bootstrap, "cluster", "up", *places, *arguments)
    try:
        _await_ready(process)
        yield runner(bootstrap)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        process.communicate()


def _await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout is not None
    assert process.stderr is not None
    while line := process.stdout.readline():
        if line.startswith("Stop with Ctrl-C"):
            return
    raise AssertionError(process.stderr.read())


def test_up_and_down_and_up_again(tmp_path: Path) -> None:
    port, zookeeper_port = _two_free_ports()
    directory = tmp_path / "cluster"
    with running(directory, port, zookeeper_port, "--brokers", "2") as moldau:
        succeed(moldau("topic", "create", "orders", "-p", "2", "-r", "2"))
        succeed(moldau("produce", "orders", stdin="one\ntwo\n"))
        taken = ("--dir", str(tmp_path / "other"), "--port", str(port), "--zookeeper-port", str(zookeeper_port))
        fail(moldau("cluster", "up", *taken), 1, f"port {port} cannot be used")
    fail(runner("")("cluster", "up", "--dir", str(directory), "--brokers", "1"), 2, "has 2 brokers")
    with running(directory, port, zookeeper_port) as moldau:
        read = succeed(moldau("consume", "orders", "--from", "beginning", "-n", "2"))
        assert sorted(read.split()) == ["one", "two"]
        assert succeed(moldau("cluster", "describe")).count(f"localhost:{port}") == 1
    assert [line for line in (directory / "broker-1.log").read_text().splitlines() if "Traceback" in line] == []


def _two_free_ports() -> tuple[int, int]:
    """Such that the next one is free as well, as far as one can know."""
    while True:
        first, second = free_port(), free_port()
        if abs(first - second) > 1 and first < 65000:
            return first, second
