"""Brokers that a module of this folder changes: `python -m support.brokers.…` is a real broker with a fault."""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from moldau.testing.broker import READY
from support.repository.sources import ROOT


@contextmanager
def changed_broker(module: str, directory: Path) -> Iterator[str]:
    """While entered it runs; gives its address."""
    paths = os.pathsep.join(map(str, (ROOT / "src", ROOT / "tests", ROOT)))
    settings = [f"log.dirs={directory}", "listeners=PLAINTEXT://127.0.0.1:0", "group.initial.rebalance.delay.ms=0"]
    command = [sys.executable, "-m", f"support.brokers.{module}", *settings]
    env = os.environ | {"PYTHONPATH": paths}
    broker = subprocess.Popen(command, env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert broker.stdout is not None
    try:
        yield broker.stdout.readline().removeprefix(READY.decode()).strip()
    finally:
        broker.kill()
        broker.communicate()
