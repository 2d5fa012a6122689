"""Processes and their children."""

import contextlib
from collections.abc import Iterable

import psutil

PATIENCE_S = 60


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """kill -9; some may have ended already."""
    killed = list(processes)
    for each in killed:
        with contextlib.suppress(psutil.NoSuchProcess):
            each.kill()
    psutil.wait_procs(killed, timeout=PATIENCE_S)
