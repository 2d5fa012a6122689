"""pytest plugin that ends a process whose test is stuck where pytest-timeout cannot interrupt it: in a call into C.

Load it with `-p` and name the limit with `--stuck-after`. The stacks of all threads are printed, then the process ends;
in a run in several processes the other tests go on in a new one.
"""

import faulthandler
import os
import sys
from collections.abc import Iterator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--stuck-after", type=float, metavar="SECONDS", help="end the process of a test that takes longer")


def pytest_configure(config: pytest.Config) -> None:
    limit_s = config.getoption("--stuck-after")
    if limit_s is not None:
        config.pluginmanager.register(Watchdog(limit_s))


class Watchdog:
    """A thread of the interpreter that needs no lock of it, started anew for each test."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        assert sys.__stderr__ is not None
        self._stderr = os.dup(sys.__stderr__.fileno())  # pytest redirects the original one

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        faulthandler.dump_traceback_later(self._limit_s, file=self._stderr, exit=True)
        try:
            return (yield)
        finally:
            faulthandler.cancel_dump_traceback_later()
