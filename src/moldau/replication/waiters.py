"""Fetches that wait for bytes. A waiter counts down as partitions grow, and fires once: on enough bytes, on time, or
because one of its partitions changed under it.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

# How often all partitions of a follower are looked at, whether they say something or not: no mistake lasts.
LOOK_AT_ALL_MS = 2_000
SILENT_MS = 1_000  # beyond the time that it waited; nobody loses a session that soon

Place = tuple[bytes, int]  # a partition: its topic's id, and its number


class Watched(Protocol):
    """What can be waited on: a set of waiters that its owner notifies."""

    @property
    def waiters(self) -> "set[FetchWaiter]": ...


class Copier:
    """A follower's fetch session, as partitions see it: they say which of them has news for it.

    A follower asks for all its partitions again and again. Looking at each of them every time would cost more than what
    there is to tell.
    """

    __slots__ = ("_asked_before", "_looked_at", "_wait_ms", "asked_at", "broker_epoch", "touched", "waiters")

    def __init__(self, now: int) -> None:
        self.asked_at = now  # the last time at which it asked for what there is
        self._asked_before: int | None = None  # the time before that: since then it was answered
        self._wait_ms = 0  # for how long it lets an answer wait
        self.broker_epoch = -1  # the one it asked with
        self._looked_at = now
        self.touched: dict[Place, None] = {}  # partitions that may have news
        self.waiters: set[FetchWaiter] = set()

    def asks(self, now: int, wait_ms: int) -> None:
        """Again, after an answer."""
        self._asked_before, self.asked_at, self._wait_ms = self.asked_at, now, wait_ms

    def silent(self, now: int) -> bool:
        """Whether it has not asked twice of late. Once is not enough: what it had asked before this process was paused
        is read when it goes on.
        """
        before = self._asked_before
        return before is None or now - before > 2 * self._wait_ms + SILENT_MS

    def due(self, broker_epoch: int, now: int) -> bool:
        """Whether all partitions are to be looked at."""
        if broker_epoch == self.broker_epoch and now - self._looked_at < LOOK_AT_ALL_MS:
            return False
        self.broker_epoch, self._looked_at = broker_epoch, now
        return True

    def touch(self, place: Place, size: int) -> None:
        """A partition grew by so many bytes; 0: there is something else to tell."""
        self.touched[place] = None
        for waiter in self.waiters:
            if size:
                waiter.grown(size)
            else:
                waiter.fire_soon()


class FetchWaiter:
    __slots__ = ("_action", "_done", "_loop", "_timer", "_watched", "committed", "fired", "follower", "missing")

    def __init__(
        self,
        watched: list[Watched],
        missing: int,
        wait_ms: int,
        action: Callable[[], None],
        *,
        committed: bool = False,
        follower: bool = False,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._action = action
        self._watched = watched
        self.missing = missing
        self.committed = committed  # it counts what lies before the last stable offset alone
        self.follower = follower  # it counts what is not committed as well, and wants to know what is
        self.fired = False
        self._done = False
        self._timer = self._loop.call_later(wait_ms / 1000, self.fire)
        for each in watched:
            each.waiters.add(self)

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
        """Stop waiting without acting: the client is gone, or the waiter has fired."""
        self.fired = self._done = True
        self._timer.cancel()
        for each in self._watched:
            each.waiters.discard(self)
        self._watched = []
