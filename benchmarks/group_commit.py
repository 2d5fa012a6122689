"""The gain of group commit: one and many producers that wait for fsync, on a disk with a fixed fsync time.

The broker runs with an fsync that takes a fixed time longer than the disk's own, so that the figure is about the broker
and not about the machine. Each producer has one request of one record on its way; `flush.messages=1`.
"""

import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import moldau
from benchmarks import frames, topics
from benchmarks.peers import SETTINGS, Peer, running
from moldau.ensemble.ports import HOST

FSYNC_MS = 5
PRODUCERS = (1, 10, 100)
SECONDS, QUICK_SECONDS = 5.0, 0.5

SLOW = """
import sys, time
from moldau.log import flush
from moldau.testing import serve

real, pause = flush._sync, float(sys.argv.pop(1))

def slow(fd):
    time.sleep(pause)
    real(fd)

flush._sync = slow
serve.main()
"""


@dataclass(frozen=True, slots=True)
class SlowDisk:
    """Moldau with an fsync that takes longer."""

    name: str = "Moldau, slow fsync"
    version: str = moldau.__version__

    def prepare(self, home: Path, port: int) -> None:
        (home / "data").mkdir()

    def command(self, home: Path, port: int) -> list[str]:
        settings = [f"log.dirs={home / 'data'}", f"listeners=PLAINTEXT://{HOST}:{port}"]
        settings += [f"{key}={value}" for key, value in SETTINGS.items()]
        return [sys.executable, "-c", SLOW, str(FSYNC_MS / 1000), *settings]


class Committed(NamedTuple):
    producers: int
    requests_per_s: float
    gain: float  # over one producer, with an fsync for each request


def study(workdir: Path, *, quick: bool) -> list[Committed]:
    rows: list[Committed] = []
    with (
        running(SlowDisk(), workdir, "group-commit") as peer,
        topics.topic(peer, 1, {"flush.messages": "1"}) as topic,
    ):
        request = frames.produce(topic.id, [(0, frames.batch(1, 100))], acks=-1)
        for producers in PRODUCERS:
            rate = _rate(peer, request, producers, QUICK_SECONDS if quick else SECONDS)
            rows.append(Committed(producers, rate, rate / rows[0].requests_per_s if rows else 1.0))
    return rows


def _rate(peer: Peer, request: bytes, producers: int, seconds: float) -> float:
    """Acknowledged requests per second of this many producers, each with its own connection and thread."""
    end = time.perf_counter() + seconds
    counts = [0] * producers

    def produce(place: int) -> None:
        with frames.Connection(peer.address) as connection:
            while time.perf_counter() < end:
                frames.check_produced(connection.ask(request), 1)
                counts[place] += 1

    threads = [threading.Thread(target=produce, args=(place,)) for place in range(producers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (time.perf_counter() - began)
