"""A broker of a test does not outlive it, even if the test is killed."""

import signal
import subprocess
import sys
from pathlib import Path

from support.brokers import answers
from support.cli import wait_until

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
    wait_until(lambda: not answers(port))
