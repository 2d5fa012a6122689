"""The franz-go program in clients/go: build it once if `go` is installed, and run its commands."""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.brokers.processes import AnyBroker

GO = shutil.which("go") or shutil.which("/usr/local/go/bin/go")
SOURCE = Path(__file__).parents[2] / "clients" / "go"
WITHOUT_GO = pytest.mark.skipif(GO is None, reason="go is not installed; on Debian: apt-get install golang")


def build(directory: Path) -> Path:
    """Compile the client; skip the test if its modules cannot be downloaded or the compiler is too old."""
    built = directory / "client"
    command = [str(GO), "build", "-buildvcs=false", "-o", str(built), "."]
    done = subprocess.run(command, cwd=SOURCE, capture_output=True, text=True, check=False)
    if done.returncode and any(hint in done.stderr for hint in ("dial tcp", "go.mod requires go", "toolchain")):
        pytest.skip(f"go cannot build the client here: {done.stderr.strip()[:200]}")
    assert done.returncode == 0, done.stderr
    return built


def client(program: Path, command: str, broker: AnyBroker, *arguments: object) -> Any:
    called = [str(program), command, broker.bootstrap, *map(str, arguments)]
    done = subprocess.run(called, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
