"""The command line as a process: run it, start it, type into it, check how it ended."""

import os
import pty
import select
import signal
import subprocess
from collections.abc import Callable

from support.brokers.fork_server import fork_server
from support.brokers.processes import MOLDAU

Run = Callable[..., subprocess.CompletedProcess[str]]
TIMEOUT_S = 60


def environment(bootstrap: str) -> dict[str, str]:
    return {**os.environ, "MOLDAU_BOOTSTRAP": bootstrap, "COLUMNS": "80"}


def runner(bootstrap: str) -> Run:
    """A function that runs `moldau` with arguments and input, and returns exit code and output."""

    def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return fork_server().run(arguments, stdin, environment(bootstrap), TIMEOUT_S)

    return run


def succeed(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode == 0, done.stderr
    return done.stdout


def fail(done: subprocess.CompletedProcess[str], exit_code: int, *words: str) -> None:
    """Check that the command failed with this exit code and one line of text with these words."""
    assert done.returncode == exit_code, (done.returncode, done.stdout, done.stderr)
    lines = done.stderr.splitlines()
    assert len(lines) == 1, done.stderr
    assert lines[0].startswith("moldau: ")
    for word in words:
        assert word in lines[0]


def start(bootstrap: str, *arguments: str) -> subprocess.Popen[str]:
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [*MOLDAU, *arguments], stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment(bootstrap)
    )


def interrupt(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    process.send_signal(signal.SIGINT)
    out, said = process.communicate(timeout=30)
    return process.returncode, out, said


def on_terminal(bootstrap: str, arguments: list[str], typed: str) -> str:
    """The output of the command on a terminal, after this was typed."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MOLDAU, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(bootstrap)
    )
    os.close(theirs)
    os.write(ours, typed.encode())
    shown = b""
    while select.select([ours], [], [], 30)[0]:
        try:
            piece = os.read(ours, 4096)
        except OSError:  # the other end is closed: the command is done
            break
        if not piece:
            break
        shown += piece
    os.close(ours)
    process.wait(30)
    return shown.decode()


def complete(bootstrap: str, line: str) -> str:
    words = line.split(" ")
    request = {
        "_MOLDAU_COMPLETE": "complete_bash",
        "COMP_WORDS": line,
        "COMP_CWORD": str(len(words) - 1),
    }
    return fork_server().run([], "", {**environment(bootstrap), **request}, TIMEOUT_S).stdout
