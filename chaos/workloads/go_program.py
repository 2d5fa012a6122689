"""The franz-go client in tests/clients/go, for runs and for tests: built once, whichever process asks first."""

import fcntl
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "tests" / "clients" / "go"
BUILT = ROOT / "build" / "go-client"
# Not optimized and without C: compiling takes two thirds of the processor time, and the client sends little.
QUICKLY = ("-buildvcs=false", "-gcflags=all=-N -l", "-ldflags=-s -w")


def compiler() -> str | None:
    return shutil.which("go") or shutil.which("/usr/local/go/bin/go")


def build() -> Path:
    """The program; subprocess.CalledProcessError has the compiler's words in `stderr`.

    One process at a time: without the lock all would compile the same packages at once, where Go's cache is empty.
    """
    program, go = BUILT / "client", compiler()
    assert go is not None, missing()
    BUILT.mkdir(parents=True, exist_ok=True)
    with (BUILT / "lock").open("w") as lock:
        fcntl.lockf(lock, fcntl.LOCK_EX)
        subprocess.run(
            [go, "build", *QUICKLY, "-o", str(program), "."],
            cwd=SOURCE,
            env={**os.environ, "CGO_ENABLED": "0"},
            capture_output=True,
            text=True,
            check=True,
        )
    return program


def missing() -> str:
    """Why it cannot be built; empty if it can."""
    return "" if compiler() else "go is not installed; on Debian: apt-get install golang"
