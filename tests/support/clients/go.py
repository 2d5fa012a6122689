"""The franz-go program in clients/go: build it once if `go` is installed, and run its commands."""

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from chaos.workloads import go_program
from support.brokers.processes import AnyBroker

WITHOUT_GO = pytest.mark.skipif(bool(go_program.missing()), reason=go_program.missing() or "no reason")


@cache
def build() -> Path:
    """Compile the client; skip the test if its modules cannot be downloaded or the compiler is too old."""
    try:
        return go_program.build()
    except subprocess.CalledProcessError as failure:
        if any(hint in failure.stderr for hint in ("dial tcp", "go.mod requires go", "toolchain")):
            pytest.skip(f"go cannot build the client here: {failure.stderr.strip()[:200]}")
        raise AssertionError(failure.stderr) from None


def client(program: Path, command: str, broker: AnyBroker, *arguments: object) -> Any:
    called = [str(program), command, broker.bootstrap, *map(str, arguments)]
    done = subprocess.run(called, capture_output=True, text=True, timeout=90, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)
