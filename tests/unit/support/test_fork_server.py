"""Commands and brokers that the tests fork from one process behave as those that a shell starts."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from moldau import __version__, compiled
from support.brokers.fork_server import ForkedProcess, ForkServer, fork_server
from support.brokers.processes import MOLDAU, broker_environment
from support.clients.cli import environment, runner
from support.eventually import eventually

NO_BROKER = "localhost:1"
VERSION = f"moldau {__version__} ({compiled.describe()})\n"


@pytest.mark.parametrize(
    "arguments", [("--version",), ("topic", "nonsense"), ("topic", "list"), ("topic", "list", "--help")], ids=" ".join
)
def test_exit_code_and_output_are_those_of_a_process(arguments: tuple[str, ...]) -> None:
    alone = subprocess.run(
        [*MOLDAU, *arguments], capture_output=True, text=True, check=False, env=environment(NO_BROKER)
    )
    forked = runner(NO_BROKER)(*arguments)
    assert (forked.returncode, forked.stdout, forked.stderr) == (alone.returncode, alone.stdout, alone.stderr)


def test_commands_know_nothing_of_those_before() -> None:
    for _ in range(2):
        assert runner(NO_BROKER)("--version", stdin="not read " * 100_000).stdout == VERSION


def test_a_command_after_one_that_took_too_long_gets_its_own_answer() -> None:
    server = ForkServer()
    assert server.run(["--version"], "", environment(NO_BROKER), 60).returncode == 0
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(["topic", "list"], "", environment(NO_BROKER), 0.01)
    assert server.run(["--version"], "", environment(NO_BROKER), 60).stdout == VERSION


def start(server: ForkServer, tmp_path: Path, *arguments: str) -> ForkedProcess:
    with open(os.devnull, "rb") as nothing, (tmp_path / "log").open("ab") as log:
        files = (nothing.fileno(), log.fileno(), log.fileno())
        return server.start(arguments, broker_environment(), *files)


def test_processes_run_side_by_side_and_tell_how_they_ended(tmp_path: Path) -> None:
    server = ForkServer()
    where = ("--listen", "127.0.0.1:0")
    one = start(server, tmp_path, "broker", "--dir", str(tmp_path / "one"), *where)
    other = start(server, tmp_path, "broker", "--dir", str(tmp_path / "other"), *where)
    wrong = start(server, tmp_path, "nonsense")
    assert wrong.wait(60) == 2
    assert one.poll() is other.poll() is None
    with pytest.raises(subprocess.TimeoutExpired):
        one.wait(0.01)
    one.kill()
    assert one.wait(60) == one.poll() == -signal.SIGKILL
    eventually(lambda: (tmp_path / "other" / "meta.properties").exists(), "the other one is ready")
    other.send_signal(signal.SIGTERM)
    assert other.wait(60) == 0
    other.send_signal(signal.SIGTERM)  # as with Popen, of no consequence


def test_its_processes_end_with_it(tmp_path: Path) -> None:
    server = ForkServer()
    broker = start(server, tmp_path, "broker", "--dir", str(tmp_path / "data"), "--listen", "127.0.0.1:0")
    server.close()
    assert broker.wait(60) == -signal.SIGKILL


def test_a_process_whose_imports_would_differ_is_not_forked() -> None:
    server, given = fork_server(), broker_environment()
    assert server.suits(given)
    assert server.suits({**given, "MOLDAU_BOOTSTRAP": "localhost:1"})
    assert not server.suits({**given, "MOLDAU_COMPILE": "0" if os.environ.get("MOLDAU_COMPILE") != "0" else "1"})
    assert not server.suits({**given, "PYTHONHASHSEED": "7"})
