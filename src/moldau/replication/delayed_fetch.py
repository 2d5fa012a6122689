"""Fetches that wait for bytes, and the sessions of followers.

A delayed fetch counts down as its partitions grow, and fires once: on enough bytes, on time, or because one of its
partitions changed.
"""

import asyncio
from collections.abc import Callable
from typing import Final, Protocol

# How often all partitions of a follower are looked at, whether they have news or not: no mistake lasts.
LOOK_AT_ALL_MS: Final = 2_000
SILENT_MS: Final = 1_000  # beyond the time that its fetch may wait; no broker loses its registration that soon

PartitionKey = tuple[bytes, int]  # topic id and partition; a `TopicIdPartition` is one


class Watched(Protocol):
    """What a fetch can wait for: its owner notifies the fetches in the set."""

    @property
    def delayed_fetches(self) -> "set[DelayedFetch]": ...


class FollowerSession:
    """A follower's fetch session, as leaders see it: they say which partitions have news for it.

    A follower asks for all its partitions again and again. Looking at each of them every time would cost more than
    copying what is new.
    """

    __slots__ = ("_asked_before", "_looked_at", "_wait_ms", "asked_at", "broker_epoch", "delayed_fetches", "touched")

    def __init__(self, now: int) -> None:
        self.asked_at = now  # the time of its last request
        self._asked_before: int | None = None  # the time of the request before that, which was answered
        self._wait_ms = 0  # max_wait_ms of its requests
        self.broker_epoch = -1  # of its last request
        self._looked_at = now
        self.touched: dict[PartitionKey, None] = {}  # partitions that may have news
        self.delayed_fetches: set[DelayedFetch] = set()

    def asks(self, now: int, wait_ms: int) -> None:
        """The follower asks again, after an answer."""
        self._asked_before, self.asked_at, self._wait_ms = self.asked_at, now, wait_ms

    def silent(self, now: int) -> bool:
        """Whether there were not two requests of late. One is not enough: after this process was paused, it reads a
        request that was sent before.
        """
        before = self._asked_before
        return before is None or now - before > 2 * self._wait_ms + SILENT_MS

    def due(self, broker_epoch: int, now: int) -> bool:
        """Whether all partitions are to be looked at."""
        if broker_epoch == self.broker_epoch and now - self._looked_at < LOOK_AT_ALL_MS:
            return False
        self.broker_epoch, self._looked_at = broker_epoch, now
        return True

    def touch(self, partition: PartitionKey, size: int) -> None:
        """A partition grew by so many bytes; 0: there is other news."""
        self.touched[partition] = None
        for delayed in self.delayed_fetches:
            if size:
                delayed.grown(size)
            else:
                delayed.fire_soon()


class DelayedFetch:
    __slots__ = ("_action", "_done", "_loop", "_timer", "_watched", "fired", "follower", "missing", "read_committed")

    def __init__(
        self,
        watched: list[Watched],
        missing: int,
        wait_ms: int,
        action: Callable[[], None],
        *,
        read_committed: bool = False,
        follower: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._action = action
        self._watched = watched
        self.missing = missing
        self.read_committed = read_committed  # bytes after the last stable offset do not count
        self.follower = follower  # uncommitted bytes count too, and a new high watermark is news
        self.fired = False
        self._done = False
        self._timer = self._loop.call_later(wait_ms / 1000, self.fire)
        for each in watched:
            each.delayed_fetches.add(self)

    def grown(self, count: int) -> None:
        """A partition got `count` more bytes. Firing waits for the end of the turn: one request may feed several."""
        self.missing -= count
        if self.missing <= 0 and not self.fired:
            self.fire_soon()

    def fire_soon(self) -> None:
        if not self.fired:
            self.fired = True
            self._loop.call_soon(self._finish)

    def fire(self) -> None:
        if not self.fired:
            self.fired = True
            self._finish()

    def _finish(self) -> None:
        if not self._done:
            self.cancel()
            self._action()

    def cancel(self) -> None:
        """Stop waiting without acting: the client is gone, or the fetch has fired."""
        self.fired = self._done = True
        self._timer.cancel()
        for each in self._watched:
            each.delayed_fetches.discard(self)
        self._watched = []
