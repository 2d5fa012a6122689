"""Cleaner process: compacts logs outside the broker's process. `python -m moldau.replication.cleaner_main`.

It reads requests from standard input and writes responses to standard output, each a line of JSON (`cleaner.py` is the
other end). It reads the log's files and writes `.cleaned` files. The process ends when its input does, which also
happens when the broker dies.
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


class Pace:
    """Limits the mean rate of bytes since the start of a piece of work."""

    def __init__(self, bytes_per_second: float) -> None:
        self._seconds_per_byte = 1 / bytes_per_second
        self._due = time.monotonic()

    def __call__(self, count: int) -> None:
        self._due += count * self._seconds_per_byte
        ahead = self._due - time.monotonic()
        if ahead >= LEAST_PAUSE_S:
            time.sleep(ahead)
        elif ahead < -1:  # at most one second of unused bytes is saved up
            self._due = time.monotonic()


def main() -> None:
    step_back()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the broker, which then ends this process
    requests: SimpleQueue[dict[str, Any]] = SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        request = requests.get()
        try:
            for told in clean(Work.from_json(request["work"]), Pace(request["bytes_per_second"])):
                tell("done" if isinstance(told, Tally) else "cleaned", asdict(told))
        except (CorruptLogError, CorruptRecords) as fault:
            tell("corrupt", str(fault))
        except OSError as problem:
            tell("failed", str(problem))


def step_back() -> None:
    """Run only when the processor is idle: a nice value alone would still delay the broker and its clients."""
    os.nice(NICENESS)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


def _read(requests: "SimpleQueue[dict[str, Any]]") -> None:
    for line in sys.stdin:
        requests.put(json.loads(line))
    os._exit(0)


def tell(kind: str, value: object) -> None:
    sys.stdout.write(json.dumps({kind: value}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
