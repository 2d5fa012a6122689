"""Opening many logs: threads of its own for each directory, and lines that tell how far it is."""

import logging
import threading
from collections import Counter
from pathlib import Path

import pytest

from moldau.replication import parallel_open
from moldau.replication.parallel_open import Progress, open_all

ONE, TWO = Path("/one"), Path("/two")


def test_each_directory_has_its_threads() -> None:
    """Two jobs of each directory can only end together: with fewer threads they would wait for ever."""
    meeting = threading.Barrier(4, timeout=30)

    def work(job: tuple[Path, int]) -> int:
        meeting.wait()
        return job[1]

    jobs = [(ONE, 0), (ONE, 1), (TWO, 2), (TWO, 3)]
    assert sorted(open_all(jobs, lambda job: job[0], work, 2)) == [(job, job[1]) for job in jobs]


def test_progress_is_told_now_and_then(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    progress = Progress(Counter({ONE: 100, TWO: 2}), lambda: now)
    with caplog.at_level(logging.INFO, "moldau.replication"):
        for _ in range(50):
            now += parallel_open.TELL_S / 10
            progress.opened(ONE)
    assert caplog.messages == [f"Opened {count} of 100 logs in /one" for count in (10, 20, 30, 40, 50)]
