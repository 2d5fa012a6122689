"""`moldau cluster up`: what it says before it starts anything. What it starts is in tests/cluster."""

import errno
import importlib.util
import sys
from pathlib import Path

import pytest

from moldau.tools.main import run
from support.brokers.processes import free_port


@pytest.fixture(autouse=True)
def _own_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def test_without_kazoo_nothing_is_started(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name, *rest: None if name == "kazoo" else real(name, *rest))
    assert run(["cluster", "up", "--dir", str(tmp_path / "cluster")]) == 1
    assert "pip install '.[cluster,spark]'" in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()


def test_a_directory_that_cannot_be_looked_into(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def refuse(self: Path, pattern: str) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "glob", refuse)  # rights do not stop everybody: not the superuser
    assert run(["cluster", "up", "--dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"moldau: cannot use --dir {tmp_path}: permission denied\n"


def test_an_even_number_of_zookeeper_servers_is_refused_with_the_reason(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run(["cluster", "up", "--dir", str(tmp_path / "cluster"), "--zookeeper-nodes", "2"]) == 2
    assert "survives no more failures than 1" in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()


def test_a_start_that_fails_leaves_no_directory(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    pytest.importorskip("kazoo", reason="needs kazoo: pip install '.[cluster]'")
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name, *rest: None if name == "pyspark" else real(name, *rest)
    )
    ports = ["--port", str(free_port()), "--zookeeper-port", str(free_port()), "--brokers", "1"]
    assert run(["cluster", "up", "--dir", str(tmp_path / "cluster"), *ports]) == 1
    assert "PySpark, which is not installed" in capsys.readouterr().err
    assert not (tmp_path / "cluster").exists()
