"""The broker's process: logging, refused settings, file descriptors, signals, the event loop."""

import asyncio
import logging
import resource
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any

from moldau.base.properties import Properties
from moldau.base.settings import SettingError

logger = logging.getLogger("moldau.broker")

FILES_WANTED = 100_000
STOPPING = (signal.SIGTERM, signal.SIGINT)
FORMAT = "%(asctime)s %(levelname)-7s %(message)s"
SHOWN_PROBLEMS = 10


def set_up_logging() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(FORMAT))
    root = logging.getLogger("moldau")
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


def tell_problems(properties: Mapping[str, str], problems: Sequence[SettingError]) -> None:
    """Print one line each, in the order of the file; only the first ones, as it may be a file of another kind."""
    file = properties if isinstance(properties, Properties) else Properties()
    for problem in sorted(problems, key=lambda each: file.line(each.name))[:SHOWN_PROBLEMS]:
        place = file.place(problem.name)
        print(f"moldau: {place}: {problem.message}" if place else f"moldau: {problem.message}", file=sys.stderr)
    more = len(problems) - SHOWN_PROBLEMS
    if more > 0:
        print(f"moldau: and {more} more problems. Is this a server.properties file?", file=sys.stderr)


def raise_file_limit(connections: int) -> None:
    """Raise the limit on open files as far as the system allows, and warn if it is too low."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES_WANTED if hard == resource.RLIM_INFINITY else min(hard, FILES_WANTED)
    if soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
        except (ValueError, OSError) as problem:  # macOS reports no hard limit but has one
            logger.warning("Cannot raise the limit on open files: %s; raise it with: ulimit -n 100000", problem)
    if soft < 4096:
        logger.warning("The limit on open files and connections is only %d; raise it with: ulimit -n 100000", soft)


def stop_on_signals(stop: Callable[[], None]) -> None:
    loop = asyncio.get_running_loop()
    for number in STOPPING:
        loop.add_signal_handler(number, stop)


def ignore_signals() -> None:
    """Ignore signals once the broker has stopped: a second Ctrl-C must not make its exit a failure.

    Blocking them is not enough: that holds for one thread, and the interpreter restores the default at its exit.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, STOPPING)
    for number in STOPPING:
        signal.signal(number, signal.SIG_IGN)


def run_loop(main: Coroutine[Any, Any, None]) -> None:
    """Run on uvloop if it is installed, else on asyncio's own loop, which is slower."""
    try:
        import uvloop
    except ImportError:
        asyncio.run(main)
        return
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)
