"""What a broker asks of its process: logging, file descriptors, the event loop."""

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any

log = logging.getLogger("moldau.broker")

FILES_WANTED = 100_000
STOPPING = (signal.SIGTERM, signal.SIGINT)
FORMAT = "%(asctime)s %(levelname)-7s %(message)s"


def set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger("moldau")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


def raise_file_limit(connections: int) -> None:
    """As many descriptors as the system allows; a line if that is too few for what was asked."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError) as problem:  # macOS names no hard limit and has one all the same
            log.warning("cannot raise the limit on open files: %s", problem)
    if soft < 4096:
        log.warning("only %d files and connections may be open at a time; raise it with: ulimit -n 100000", soft)


def stop_on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, stop)


def ignore_signals() -> None:
    """The broker has stopped: an impatient second Ctrl-C must not turn the end of its process into a failure.

    To block them is not enough, that holds for one thread: the interpreter puts back the default on its way out, and
    another thread would take the signal. What is ignored it leaves alone.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """On uvloop where it is installed, else on Python's own loop: slower, the same otherwise."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
