"""pytest plugin that ends a process whose test is stuck where pytest-timeout cannot interrupt it: in a call into C.

Load it with `-p` and name the limit with `--stuck-after`. The stacks of all threads are printed, then the process ends.
In a run in several processes the other tests go on in a new one. If no process reports anything for `--silent-after`,
the run ends, and the tests that had begun are printed.
"""

import faulthandler
import os
import sys
import threading
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stuck-after", type=float, metavar="SECONDS", help="end the process of a test that takes longer")
    parser.addoption("--silent-after", type=float, metavar="SECONDS", help="end a run in which no test ends for longer")


def pytest_configure(config: pytest.Config) -> None:
    limit_s, silent_s = config.getoption("--stuck-after"), config.getoption("--silent-after")
    distributes = config.getoption("numprocesses", None) and not hasattr(config, "workerinput")
    if distributes and silent_s is not None:
        config.pluginmanager.register(ControllerWatchdog(silent_s))
    if not distributes and limit_s is not None:
        config.pluginmanager.register(Watchdog(limit_s))


def original_stderr() -> int:
    """Another descriptor of stderr: pytest redirects the one that tests write to."""
    assert sys.__stderr__ is not None
    return os.dup(sys.__stderr__.fileno())


class Watchdog:
    """A thread of the interpreter that needs no lock of it, started anew for each test."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stderr = original_stderr()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        faulthandler.dump_traceback_later(self._limit_s, file=self._stderr, exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()


class ControllerWatchdog:
    """A timer in the process that distributes tests, started anew by each report."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._stderr = original_stderr()
        self._running: dict[str, None] = {}
        self._timer: threading.Timer | None = None

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._running[nodeid] = None
        self._restart()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._running.pop(nodeid, None)
        self._restart()

    def pytest_unconfigure(self) -> None:
        self._cancel()

    def _restart(self) -> None:
        self._cancel()
        self._timer = threading.Timer(self._limit_s, self._end)
        self._timer.daemon = True
        self._timer.start()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _end(self) -> None:
        begun = ", ".join(self._running) or "none"
        os.write(self._stderr, f"\nNo test ended for {self._limit_s:.0f} s. Begun: {begun}.\n".encode())
        os._exit(1)
