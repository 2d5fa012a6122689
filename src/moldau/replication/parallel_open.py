"""Opens many logs at start-up, with threads of its own for each log directory, and logs the progress."""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from pathlib import Path
from typing import TypeVar

logger = logging.getLogger("moldau.replication")

T = TypeVar("T")
R = TypeVar("R")

TELL_S = 5.0  # between two lines of progress about a directory


class Progress:
    """How many logs of each directory are open; logged every few seconds, and not at all if it goes quickly."""

    def __init__(self, total: Counter[Path], clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._done: Counter[Path] = Counter()
        self._told = dict.fromkeys(total, clock())

    def opened(self, directory: Path) -> None:
        self._done[directory] += 1
        if self._clock() - self._told[directory] >= TELL_S:
            self._told[directory] = self._clock()
            logger.info("Opened %d of %d logs in %s", self._done[directory], self._total[directory], directory)


def open_all(
    jobs: Iterable[T], directory_of: Callable[[T], Path], work: Callable[[T], R], threads: int
) -> Iterator[tuple[T, R]]:
    """Each job with its result, in the order in which they are done."""
    waiting = list(jobs)
    total = Counter(map(directory_of, waiting))
    progress = Progress(total)
    with ExitStack() as stack:
        pools = {each: stack.enter_context(ThreadPoolExecutor(threads, "moldau-recovery")) for each in total}
        futures: dict[Future[R], T] = {pools[directory_of(job)].submit(work, job): job for job in waiting}
        for done in as_completed(futures):
            job = futures[done]
            progress.opened(directory_of(job))
            yield job, done.result()
