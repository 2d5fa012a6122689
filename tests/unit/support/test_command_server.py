"""Commands that the tests fork from one process behave as those that a shell starts."""

import subprocess

import pytest

from moldau import __version__, compiled
from support.clients.cli import MOLDAU, environment, runner
from support.clients.command_server import CommandServer

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
    server = CommandServer()
    assert server.run(["--version"], "", environment(NO_BROKER), 60).returncode == 0
    with pytest.raises(subprocess.TimeoutExpired):
        server.run(["topic", "list"], "", environment(NO_BROKER), 0.01)
    assert server.run(["--version"], "", environment(NO_BROKER), 60).stdout == VERSION
