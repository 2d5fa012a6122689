"""A broker of a test does not outlive it, even if the test is killed."""

import os
import signal
import subprocess
import sys
from pathlib import Path

from support.cli import wait_until

TEST = """
import os, signal, sys
from moldau.testing import Broker
print(Broker(sys.argv[1]).start().pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_test_leaves_no_broker(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TEST, str(tmp_path / "data")]
    killed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert killed.returncode == -signal.SIGKILL
    pid = int(killed.stdout)
    wait_until(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
