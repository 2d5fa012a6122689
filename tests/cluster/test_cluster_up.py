"""`moldau cluster up`: one command, several brokers; the same directory goes on where it stopped."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from support.brokers.processes import free_port
from support.clients.cli import Run, fail, runner, start, succeed
from support.eventually import eventually


@contextmanager
def running(
    directory: Path, port: int, zookeeper_port: int, *arguments: str, said: list[str] | None = None
) -> Iterator[Run]:
    bootstrap = f"localhost:{port}"
    options = ("--dir", str(directory), "--port", str(port), "--zookeeper-port", str(zookeeper_port))
    process = start(bootstrap, "cluster", "up", *options, *arguments)
    try:
        lines = _await_ready(process)
        if said is not None:
            said += lines
        yield runner(bootstrap)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(60)
        process.communicate()


def _await_ready(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    assert process.stderr is not None
    lines = []
    while line := process.stdout.readline():
        lines.append(line)
        if line.startswith("Stop with Ctrl-C"):
            return lines
    raise AssertionError(process.stderr.read())


def test_up_and_down_and_up_again(tmp_path: Path) -> None:
    port, zookeeper_port = _two_free_ports()
    directory = tmp_path / "cluster"
    with running(directory, port, zookeeper_port, "--brokers", "2") as moldau:
        succeed(moldau("topic", "create", "orders", "-p", "2", "-r", "2"))
        succeed(moldau("produce", "orders", stdin="one\ntwo\n"))
        taken = ("--dir", str(tmp_path / "other"), "--port", str(port), "--zookeeper-port", str(zookeeper_port))
        fail(moldau("cluster", "up", *taken), 1, f"cannot listen on port {port}", "choose other ports with --port")
    fail(runner("")("cluster", "up", "--dir", str(directory), "--brokers", "1"), 2, "has 2 brokers")
    with running(directory, port, zookeeper_port) as moldau:
        read = succeed(moldau("consume", "orders", "--from", "beginning", "-n", "2"))
        assert sorted(read.split()) == ["one", "two"]
        assert succeed(moldau("cluster", "describe")).count(f"localhost:{port}") == 1
    assert [line for line in (directory / "broker-1.log").read_text().splitlines() if "Traceback" in line] == []


def test_a_broker_that_was_killed_is_started_again_from_another_terminal(tmp_path: Path) -> None:
    port, zookeeper_port = _two_free_ports(3)
    directory = tmp_path / "cluster"
    said: list[str] = []
    with running(directory, port, zookeeper_port, said=said) as moldau:
        succeed(moldau("topic", "create", "orders"))
        (orders,) = json.loads(succeed(moldau("topic", "describe", "orders", "-o", "json")))
        assert (len(orders["partitions"][0]["replicas"]), orders["configs"]["min.insync.replicas"]) == (3, "2")
        row = next(line for line in said if line.startswith("  Broker 2"))
        pid = int(row.split("process ")[1].split()[0])
        os.kill(pid, signal.SIGKILL)
        restarted = succeed(moldau("cluster", "restart", "2", "--dir", str(directory)))
        assert restarted.startswith("Broker 2 is running (process ")
        assert str(pid) not in restarted
        fail(moldau("cluster", "restart", "7", "--dir", str(directory)), 1, "no broker 7", "1, 2, 3")
        eventually(lambda: moldau("cluster", "health").returncode == 0, "the cluster is healthy")
    fail(runner("")("cluster", "restart", "2", "--dir", str(directory)), 1, "no moldau cluster up runs in")


def _two_free_ports(brokers: int = 2) -> tuple[int, int]:
    """Such that the next ones are free as well, as far as one can know."""
    while True:
        first, second = free_port(), free_port()
        if abs(first - second) > brokers and first < 65000:
            return first, second
