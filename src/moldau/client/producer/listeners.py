"""Who is told of an outcome, and which failures nobody looked at. Knows nothing of librdkafka.

`Outcome._listeners` is None as long as nobody looks, then a list, and `TAKEN` when they were told. It is the mark of
the unseen failures if the outcome is one of them.
"""

import threading
from collections.abc import Callable
from typing import Any

from moldau.client.errors import Aborted, ClientError, DeliveryFailed
from moldau.client.producer.delivery import Listener, Outcome
from moldau.client.producer.failures import UnseenFailures

TAKEN = ()


class Waiter:
    """A thread that waits; it is told at once, and not in order with callbacks."""

    __slots__ = ("_lock",)

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._lock.acquire()

    def __call__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float) -> bool:
        return self._lock.acquire(timeout=max(0.0, min(timeout, threading.TIMEOUT_MAX)))


class Listeners:
    """The listeners of all outcomes of a producer. `call_later` calls those that are no waiters."""

    def __init__(self, call_later: Callable[..., None]) -> None:
        self.mutex = threading.Lock()
        self._unseen = UnseenFailures()
        self._call_later = call_later

    def add(self, outcome: Outcome[Any], listener: Listener) -> None:
        """Tell the listener when the outcome is known, now if it is.

        `settle` sets `_known` and then looks for listeners, both without the mutex; so this looks for `_known` twice.
        """
        with self.mutex:
            late = outcome._known is not None
            if not late:
                others = outcome._listeners if isinstance(outcome._listeners, list) else []
                outcome._listeners = [*others, listener]
            listeners = [] if outcome._known is None else self._take(outcome)
            if late:
                listeners.append(listener)
                self._look_at(outcome)
        self._tell(outcome, listeners)

    def forget(self, outcome: Outcome[Any], listener: Listener) -> None:
        """It waits no longer, and has not seen the outcome."""
        with self.mutex:
            if isinstance(outcome._listeners, list) and listener in outcome._listeners:
                outcome._listeners = [each for each in outcome._listeners if each is not listener] or None

    def settled(self, outcome: Outcome[Any]) -> None:
        """The outcome is known."""
        with self.mutex:
            listeners = self._take(outcome)
        self._tell(outcome, listeners)

    def fail(self, outcome: Outcome[Any], error: ClientError, count: int) -> None:
        """Set the error, which stands for so many records; remember it if nobody looks at the outcome."""
        with self.mutex:
            unseen = outcome._listeners is None
            if unseen:
                outcome._listeners = self._unseen.mark
                self._unseen.add(error, count)
            outcome._known = error
        if unseen and not isinstance(error, Aborted):
            self._unseen.log(error, count)
        self.settled(outcome)

    def look_at(self, outcome: Outcome[Any]) -> None:
        """The caller sees the error: nobody else needs to be told."""
        with self.mutex:
            self._look_at(outcome)

    def take_unseen(self) -> DeliveryFailed | None:
        """The failures that nobody looked at so far; they are forgotten."""
        with self.mutex:
            return self._unseen.take()

    def _look_at(self, outcome: Outcome[Any]) -> None:
        if outcome._listeners is self._unseen.mark:
            self._unseen.discard(outcome._known, getattr(outcome._known, "count", 1))
            outcome._listeners = TAKEN

    @staticmethod
    def _take(outcome: Outcome[Any]) -> list[Listener]:
        listeners = outcome._listeners
        if not isinstance(listeners, list):
            return []
        outcome._listeners = TAKEN
        return listeners

    def _tell(self, outcome: Outcome[Any], listeners: list[Listener]) -> None:
        for listener in listeners:
            if isinstance(listener, Waiter):
                listener()
            else:
                self._call_later(listener, outcome)
