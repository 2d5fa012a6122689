"""The program that compacts logs, in a process of its own: `python -m moldau.replication.cleaner_main`.

A line of JSON on standard input asks for work, lines on standard output tell how it goes (see `cleaner.py`, the other
end). It reads the log's files and writes `.cleaned` ones. When its input ends, as it does when the broker dies, so does
the program, whatever it was about.
"""

import json
import os
import signal
import sys
import threading
import time
from dataclasses import asdict
from queue import SimpleQueue
from typing import Any

from moldau.log.compaction.rewriting import clean
from moldau.log.compaction.work import Tally, Work
from moldau.log.segment import CorruptLogError
from moldau.wire.compression import CorruptRecords

NICENESS = 19
LEAST_PAUSE_S = 0.01


class Throttle:
    """Keeps the mean rate of bytes at most at what is allowed, from the beginning of a piece of work on."""

    def __init__(self, bytes_per_second: float) -> None:
        self._seconds_per_byte = 1 / bytes_per_second
        self._due = time.monotonic()

    def __call__(self, count: int) -> None:
        self._due += count * self._seconds_per_byte
        ahead = self._due - time.monotonic()
        if ahead >= LEAST_PAUSE_S:
            time.sleep(ahead)
        elif ahead < -1:  # what was not used in the last second is lost
            self._due = time.monotonic()


def main() -> None:
    step_back()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which ends this process in its own time
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = requests.get()
        try:
            for told in clean(Work.from_json(request["work"]), Throttle(request["bytes_per_second"])):
                tell("done" if isinstance(told, Tally) else "cleaned", asdict(told))
        except (CorruptLogError, CorruptRecords) as fault:
            tell("corrupt", str(fault))
        except OSError as problem:
            tell("failed", str(problem))


def step_back() -> None:
    """The broker and its clients come first: a mere nice value would let this process finish its turn before them."""
    os.nice(NICENESS)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _read(requests: "SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    os._exit(0)


def tell(what: str, value: object) -> None:
    sys.stdout.write(json.dumps({what: value}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
