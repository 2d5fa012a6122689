"""A broker of a test does not outlive it, even if the test is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.brokers.processes import answers
from support.eventually import eventually

TEST = """
import os, signal, sys
from moldau.testing import Broker
print(Broker(sys.argv[1]).start().bootstrap_servers, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_test_leaves_no_broker(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TEST, str(tmp_path / "data")]
    killed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    port = int(killed.stdout.rpartition(":")[2])
    eventually(lambda: not answers(port), "the broker ends")


GUARDED = """
import os, signal, subprocess
from moldau.ensemble.guard import Guard
kept, guarded = (subprocess.Popen(["sleep", "600"], stdout=subprocess.DEVNULL) for _ in range(2))
Guard(kept.pid).dismiss()
guard = Guard(guarded.pid)
print(kept.pid, guarded.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_guard_ends_what_it_was_told_to_and_nothing_else() -> None:
    killed = subprocess.run([sys.executable, "-c", GUARDED], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    kept, guarded = map(int, killed.stdout.split())
    try:
        eventually(lambda: not runs(guarded), "the child ends")
        assert runs(kept)
    finally:
        os.kill(kept, signal.SIGKILL)


def runs(pid: int) -> bool:
    """Not ended, and not only waiting to be buried by whoever adopted it."""
    done = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip()[:1] not in ("", "Z")
