"""Many librdkafka members of one group in this process, which join and leave at random, and the owners of partitions.

One thread polls them all. Tests check `trespasses` and `owners`.
"""

import random
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, TopicPartition

POLL_PAUSE_S = 0.005
CLOSERS = 8  # most members that leave at the same time

Place = tuple[str, int]


class Crowd:
    def __init__(self, settings: dict[str, Any], topic: str) -> None:
        self.settings = settings
        self.topic = topic
        self.cooperative = settings.get("group.protocol") == "consumer" or "cooperative" in settings.get(
            "partition.assignment.strategy", ""
        )
        self.members: dict[str, Consumer] = {}
        self.owners: dict[Place, str] = {}
        self.trespasses: list[str] = []
        self.errors: list[str] = []
        self.joined = self.left = self.lost = 0
        self.last_change = time.monotonic()
        self.lock = threading.Lock()  # callbacks run in the polling thread and in the closing ones

    # -- join and leave

    def join(self) -> None:
        name = f"member-{self.joined}"
        self.joined += 1
        consumer = Consumer({**self.settings, "client.id": name})
        consumer.subscribe(
            [self.topic],
            on_assign=lambda consumer, parts: self._gained(name, consumer, parts),
            on_revoke=lambda consumer, parts: self._gave(name, consumer, parts),
            on_lost=lambda consumer, parts: self._gave(name, consumer, parts, lost=True),
        )
        with self.lock:
            self.members[name] = consumer

    def leave(self, closers: ThreadPoolExecutor, chance: random.Random) -> None:
        with self.lock:
            name = chance.choice(sorted(self.members))
            consumer = self.members.pop(name)
        self.left += 1
        closers.submit(consumer.close)

    # -- callbacks

    def _gained(self, name: str, consumer: Consumer, parts: list[TopicPartition]) -> None:
        """librdkafka may still assign partitions while it closes; these are neither used nor revoked."""
        with self.lock:
            for place in ((part.topic, part.partition) for part in parts if name in self.members):
                owner = self.owners.get(place, name)
                if owner != name:
                    self.trespasses.append(f"{name} got {place} while it was {owner}'s")
                self.owners[place] = name
            self.last_change = time.monotonic()
        (consumer.incremental_assign if self.cooperative else consumer.assign)(parts)

    def _gave(self, name: str, consumer: Consumer, parts: list[TopicPartition], lost: bool = False) -> None:
        with self.lock:
            self.lost += lost
            for place in ((part.topic, part.partition) for part in parts):
                if self.owners.get(place) == name:
                    del self.owners[place]
            self.last_change = time.monotonic()
        if self.cooperative:
            consumer.incremental_unassign(parts)
        else:
            consumer.unassign()

    # -- driving

    @contextmanager
    def polled(self) -> Iterator[None]:
        """Poll all members in a thread; they leave at the end."""
        ending = threading.Event()
        poller = threading.Thread(target=self._poll, args=(ending,))
        poller.start()
        try:
            yield
        finally:
            ending.set()
            poller.join()
            with ThreadPoolExecutor(CLOSERS) as closers:
                for consumer in self.members.values():
                    closers.submit(consumer.close)

    def _poll(self, ending: threading.Event) -> None:
        while not ending.wait(POLL_PAUSE_S):
            with self.lock:
                present = list(self.members.values())
            for consumer in present:
                try:
                    message = consumer.poll(0)
                except RuntimeError:  # closed in the meantime
                    continue
                if message is not None and (error := message.error()) is not None:
                    self.errors.append(error.str())

    def storm(self, most: int, seconds: float, chance: random.Random) -> None:
        """Let members join and leave for this long, then start up to `most`."""
        ends = time.monotonic() + seconds
        with ThreadPoolExecutor(CLOSERS) as closers:
            while time.monotonic() < ends:
                few = len(self.members) < most // 2
                if few or (len(self.members) < most and chance.random() < 0.5):
                    self.join()
                else:
                    self.leave(closers, chance)
                time.sleep(chance.uniform(0, 2 * seconds / (most * 10)))
        while len(self.members) < most:
            self.join()
