"""Exactly once: batches of messages, each in a transaction that has their offsets too.

This is the loop, whatever the transaction is; `kafka_target` and `database_target` begin, commit and abort it.
"""

import logging
import threading
import time
from collections.abc import Sequence
from typing import Any, Generic

from moldau.client.consumer.batches import check_batch
from moldau.client.consumer.database_target import DatabaseTarget
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.handover import AnyMessage
from moldau.client.consumer.kafka_target import KafkaTarget
from moldau.client.consumer.queries import Queries
from moldau.client.consumer.transaction_targets import Batch, Repeat, Target
from moldau.client.errors import InvalidUse
from moldau.client.offset_store.store import open_store
from moldau.client.producer.producer import Producer
from moldau.client.serializers.port import K, V

logger = logging.getLogger(__name__)

FIRST_PAUSE_S = 0.1
LONGEST_PAUSE_S = 5.0
REPEATING_S = 60.0  # how long a batch is repeated because of errors that may pass, before the last one is raised


class Transactions(Generic[K, V]):
    """Iterates over batches. Asking for the next one commits the one before; leaving the loop aborts it.

    An aborted batch is handed out again, here or to the next owner of its partitions.
    """

    def __init__(self, engine: ConsumerEngine, target: Target, n: int, wait: float) -> None:
        self._engine = engine
        self._steps = Steps(engine, target)
        self._n = n
        self._wait = wait
        self._woken = False  # while a batch was being filled
        self._thread: int | None = None  # that iterates

    def __iter__(self) -> "Transactions[K, V]":
        self._steps.abandon()  # a loop that begins again has left its batch
        return self

    def __next__(self) -> Batch[K, V]:
        if self._steps.closed:
            raise StopIteration
        self._thread = threading.get_ident()
        self._engine.start()
        if pause_s := self._steps.finish():
            time.sleep(pause_s)
        while True:
            pause_s = self._steps.prepare()
            if not pause_s:
                messages = self._take()
                if not messages:
                    raise StopIteration
                batch, pause_s = self._steps.begin(messages)
                if batch is not None:
                    return batch
            time.sleep(pause_s)

    def close(self) -> None:
        """Abort the batch that is open, and end the iteration. Another thread's batch is left to that thread."""
        if self._thread in (None, threading.get_ident()):
            self._steps.close()

    def __del__(self) -> None:
        try:
            self.close()
        except Exception as error:  # noqa: BLE001  # there is nobody to raise it to
            logger.warning("A batch was not aborted when its loop was left: %s", error)

    def _take(self) -> list[AnyMessage]:
        """Up to `n` messages, or as many as come within `wait` seconds after the first; none after `wakeup`."""
        if self._woken:
            self._woken = False
            return []
        found = self._engine.take(self._n, None)
        until = time.monotonic() + self._wait
        more: list[AnyMessage] | None = found
        try:
            while more and len(found) < self._n:
                more = self._engine.take_in_time(self._n - len(found), max(until - time.monotonic(), 0))
                found += more or ()
        except BaseException:
            self._engine.rewind(found)
            raise
        self._woken = bool(found) and more == []
        return found


class Steps:
    """The loop's steps around its messages, for threads and for coroutines.

    A batch that was rolled back for a reason that may pass is rewound, and the step says how long to pause.
    """

    def __init__(self, engine: ConsumerEngine, target: Target) -> None:
        self._engine = engine
        self._target = target
        self._open: Batch[Any, Any] | None = None
        self._repeats = Repeats()
        self.closed = False

    def finish(self) -> float:
        """Commit the batch that is open. Returns a pause, or 0."""
        batch, self._open = self._open, None
        if batch is None:
            return 0
        try:
            self._target.commit(batch)
        except Repeat as repeat:
            self._engine.rewind(batch)
            return self._repeats.pause(repeat)
        except BaseException:
            self._engine.rewind(batch)
            raise
        self._engine.done_many(batch)
        self._repeats = Repeats()
        return 0

    def prepare(self) -> float:
        """Before messages are taken. Returns 0, or a pause after which this has to be done again."""
        try:
            self._target.prepare()
        except Repeat as repeat:
            return self._repeats.pause(repeat, "Partitions were not prepared, which is tried again")
        return 0

    def begin(self, messages: Sequence[AnyMessage]) -> tuple[Batch[Any, Any] | None, float]:
        """The batch of these messages; None and a pause if they have to be taken again."""
        try:
            self._open = self._target.begin(messages)
        except Repeat as repeat:
            self._engine.rewind(messages)
            return None, self._repeats.pause(repeat)
        except BaseException:
            self._engine.rewind(messages)
            raise
        return self._open, 0

    def abandon(self) -> None:
        """Abort the batch that is open, if there is one."""
        batch, self._open = self._open, None
        if batch is not None:
            try:
                self._target.abort(batch)
            finally:
                self._engine.rewind(batch)

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            self.abandon()
            self._target.close()


def open_transactions(
    engine: ConsumerEngine, queries: Queries, target: object, n: int, wait: float
) -> Transactions[Any, Any]:
    """The loop for what the user passed to `Consumer.transactions`."""
    group = check(engine, n)
    made: Target
    if isinstance(target, Producer):
        made = KafkaTarget(engine, target.transaction())
    else:
        made = DatabaseTarget(engine, open_store(target, group), queries.committed)
    return Transactions(engine, made, n, wait)


def check(engine: ConsumerEngine, n: int) -> str:
    """Check that the consumer fits. From now on it commits nothing by itself. Returns its group."""
    group = engine.options.group
    if group is None:
        raise InvalidUse("transactions() needs a consumer with a group: offsets are stored for a group")
    if engine.options.delivery == "at-most-once":
        raise InvalidUse('delivery="at-most-once" commits before messages are handed out; leave it out')
    check_batch(n)
    engine.auto_commit = False
    return group


class Repeats:
    """Batches in a row that were rolled back: a pause before each repetition, and an end."""

    def __init__(self) -> None:
        self._next_s = FIRST_PAUSE_S
        self._until: float | None = None

    def pause(self, repeat: Repeat, what: str = "A batch was rolled back, and comes again") -> float:
        """How long to wait, in seconds; raises the reason if there were errors for too long."""
        now = time.monotonic()
        if repeat.bounded:
            self._until = self._until or now + REPEATING_S
            if now >= self._until:
                raise repeat.reason
        logger.warning("%s: %s", what, repeat.reason)
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, LONGEST_PAUSE_S)
        return pause_s
