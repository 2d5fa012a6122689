"""Failover as a producer sees it: the longest gap between two acknowledgements when the leader is lost."""

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from benchmarks.clusters import RunningCluster

INTERVAL_S = 0.005  # between two records
STEADY_S = 2.0  # steady acknowledgements before the fault and after recovery
LIMIT_S = 90.0
RESTED_S = 0.5  # acknowledgements are never this late without a fault
HASTY: dict[str, Any] = {"socket.timeout.ms": 2_000, "topic.metadata.refresh.interval.ms": 500}


class _Watch:
    """A producer that sends all the time, and the times of its acknowledgements."""

    def __init__(self, bootstrap: str, topic: str, settings: dict[str, Any]) -> None:
        self.times: list[float] = []
        self._topic = topic
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0, "log_level": 0, **settings}
        )
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "_Watch":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ending.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending.is_set():
            try:
                self._producer.produce(self._topic, b"x" * 100, partition=0, on_delivery=self._told)
            except BufferError:
                self._producer.poll(INTERVAL_S)
            self._producer.poll(0)
            self._ending.wait(INTERVAL_S)
        self._producer.purge()
        self._producer.flush(1)

    def _told(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self.times.append(time.perf_counter())


def gap_ms(cluster: RunningCluster, topic: str, away: Callable[[int], None], settings: dict[str, Any]) -> float:
    """`away` stops the broker with this index, the leader of the topic's only partition."""
    leader = cluster.leader_of(topic)
    with _Watch(cluster.bootstrap, topic, settings) as watch:
        _wait(lambda: len(watch.times) > 1 and watch.times[-1] - watch.times[0] > STEADY_S, "the first records")
        away(leader - 1)
        gone = time.perf_counter()
        _wait(lambda: _is_back(watch.times, gone), "records after the leader went")
        times = [each for each in watch.times if each > gone - STEADY_S]
    return max(later - earlier for earlier, later in itertools.pairwise(times)) * 1000


def _is_back(times: list[float], gone: float) -> bool:
    """Whether a new leader has acknowledged for a while: what was in flight at the fault does not count."""
    now = time.perf_counter()
    if now - gone < STEADY_S or not times or now - times[-1] > RESTED_S:
        return False
    late = [at for at in times if at > now - STEADY_S]
    return late[0] - (now - STEADY_S) < RESTED_S and times[-1] > gone + RESTED_S


def _wait(holds: Callable[[], bool], what: str) -> None:
    until = time.perf_counter() + LIMIT_S
    while not holds():
        if time.perf_counter() > until:
            raise TimeoutError(f"{what} did not come within {LIMIT_S:.0f} s")
        time.sleep(0.02)


def kill(cluster: RunningCluster, topic: str) -> float:
    """kill -9, with the client's defaults; the broker is restarted afterwards."""
    gone: list[int] = []

    def away(index: int) -> None:
        gone.append(index)
        cluster.nodes.peers[index].kill()

    try:
        return gap_ms(cluster, topic, away, {})
    finally:
        for index in gone:
            cluster.nodes.peers[index].start()


def pause(cluster: RunningCluster, topic: str) -> float:
    """SIGSTOP: only the expired session shows it. The client refreshes metadata often."""
    gone: list[int] = []

    def away(index: int) -> None:
        gone.append(index)
        os.kill(cluster.nodes.peers[index].pid, signal.SIGSTOP)

    try:
        return gap_ms(cluster, topic, away, HASTY)
    finally:
        for index in gone:
            os.kill(cluster.nodes.peers[index].pid, signal.SIGCONT)
