"""Supervisor: runs the process of the services beside a broker, and starts it again when it dies. Loads no service.

One thread waits for the process. It says which service listens where, and what went wrong.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Final

from moldau.services.table import SERVICES

COMMAND: Final = (sys.executable, "-m", "moldau.services.process")
NO_RESTART: Final = frozenset({0, 3})  # it was asked to stop, or no service can listen
FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 30.0
STEADY_S: Final = 60.0  # after such a life the next pause is the first one again
STOP_S: Final = 8.0

Say = Callable[[str], None]


class Supervisor:
    """`wanted` is the JSON of `process.Wanted`. `say` gets one line at a time, from another thread."""

    def __init__(
        self,
        wanted: str,
        say: Say,
        *,
        command: Sequence[str] = COMMAND,
        first_pause_s: float = FIRST_PAUSE_S,
    ) -> None:
        self._wanted = wanted
        self._say = say
        self._command = tuple(command)
        self._first_pause_s = first_pause_s
        self._stopping = threading.Event()
        self._lock = threading.Lock()  # the process is started, or stopped
        self._process: subprocess.Popen[bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="moldau-services", daemon=True)

    @property
    def pid(self) -> int | None:
        process = self._process
        return process.pid if process is not None and process.poll() is None else None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the process and wait for it; one that does not stop is killed."""
        with self._lock:
            self._stopping.set()
            process = self._process
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                self._say(f"The services did not stop within {STOP_S:.0f} s; killing them.")
                process.kill()
        if self._thread.is_alive():
            self._thread.join(STOP_S)

    def _run(self) -> None:
        pause_s = self._first_pause_s
        while True:
            begun = time.monotonic()
            code = self._live()
            if self._stopping.is_set() or code in NO_RESTART:
                return
            if time.monotonic() - begun > STEADY_S:
                pause_s = self._first_pause_s
            self._say(f"The services' process {how_ended(code)}; starting it again in {pause_s:g} s.")
            if self._stopping.wait(pause_s):
                return
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def _live(self) -> int:
        """One life of the process; returns its exit code."""
        with self._lock:
            if self._stopping.is_set():
                return 0
            # In a group of its own: Ctrl-C is for the parent, which ends the process, also while it still imports.
            self._process = process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, process_group=0
            )
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            with contextlib.suppress(BrokenPipeError):  # it died at once
                process.stdin.write(self._wanted.encode() + b"\n")
                process.stdin.flush()
            for line in process.stdout:
                self._say(explain(line))
            return process.wait()


def explain(line: bytes) -> str:
    """A line of the process, as text for people."""
    try:
        told = json.loads(line)
        if "problem" in told:
            return str(told["problem"])
        title = SERVICES[told["service"]].title
        return f"  {title[0].upper()}{title[1:]} at {told['url']}"
    except (ValueError, KeyError, TypeError):
        return line.decode(errors="replace").rstrip()


def how_ended(code: int) -> str:
    if code < 0:
        return f"was ended by {signal.Signals(-code).name}"
    return f"has ended with exit code {code}"
