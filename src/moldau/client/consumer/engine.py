"""ConsumerEngine: poll thread, handover, progress and commits of one consumer. Façades, transactions and the runner
are built on it, and use nothing else.
"""

import atexit
import contextlib
import logging
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.commits import Commits, OffsetAndMetadata
from moldau.client.consumer.filters import Filter
from moldau.client.consumer.handover import AnyMessage, Handover
from moldau.client.consumer.options import PATIENCE, ConsumerOptions
from moldau.client.consumer.poll_loop import CLOSE_S, PollLoop
from moldau.client.consumer.rebalances import OffsetProvider, Rebalances, RevocationHook
from moldau.client.errors import Closed, InvalidUse

if TYPE_CHECKING:
    from confluent_kafka import Consumer as KafkaConsumer

logger = logging.getLogger(__name__)

_running: "weakref.WeakSet[ConsumerEngine]" = weakref.WeakSet()


class ConsumerEngine:
    """One consumer without a façade."""

    def __init__(self, options: ConsumerOptions) -> None:
        self.options = options
        self.auto_commit = options.auto_commit
        self._filter = Filter(options.where)
        self._handover = Handover(options.buffer_messages, options.buffer_bytes, options.deserializers)
        self._commits = Commits()
        self._rebalances = Rebalances(
            self._handover,
            self._commits,
            options.listener,
            self._committable,
            incremental=options.incremental,
            patience_s=options.max_poll_interval_s * PATIENCE,
        )
        self.loop = PollLoop(
            options, self._handover, self._commits, self._rebalances, self._committable, self._subscribe
        )
        self._started = False
        self._closed = False

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the poll thread, and subscribe; a second call does nothing."""
        if self._closed:
            raise Closed("the consumer was closed")
        if not self._started:
            self._started = True
            self.loop.start()
            _running.add(self)

    def close(self, timeout: float = CLOSE_S) -> None:
        """Commit what is done, leave the group, and end the thread. Messages in hand are not waited for."""
        if self._closed:
            return
        self._closed = True
        self._handover.close()
        if self._started:
            if not self.loop.stop(timeout):
                logger.warning("The consumer is still closing after %.0f s; its group may notice only later", timeout)
            _running.discard(self)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, most: int, timeout: float | None) -> list[AnyMessage]:
        """Up to `most` messages, in hand until they are done; [] when the time is over or after `wakeup`.

        Raises `ClientError` on errors that do not pass, and `Closed`.
        """
        while True:
            messages = self._handover.take(most, timeout)
            if not messages:
                return messages
            if self.options.delivery == "at-most-once" and self.auto_commit:
                self._commit_ahead(messages)
            kept = self._filtered(messages)
            if kept:
                return kept

    def done(self, message: AnyMessage) -> None:
        """A message was processed; from any thread, in any order."""
        self._handover.done((message,))

    def done_many(self, messages: Iterable[AnyMessage]) -> None:
        self._handover.done(messages)

    def rewind(self, messages: Iterable[AnyMessage]) -> None:
        """Messages were not processed: hand them, and those that follow in their partitions, out again."""
        self._handover.rewind(messages)
        self.loop.nudge()

    def in_hand(self) -> list[AnyMessage]:
        """Messages that are handed out and not done."""
        return self._handover.in_hand()

    def wakeup(self) -> None:
        """End the `take` that waits now, or else the next one; from any thread or signal handler."""
        self._handover.wakeup()

    def add_listener(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it, from the poll thread, when `take` may have an outcome. Returns what removes it."""
        return self._handover.add_listener(callback)

    # ── offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None = None, wait: bool = True) -> None:
        """Commit these offsets, or what is done. Waits for the outcome, and raises its error, if `wait`."""
        if self.options.group is None:
            raise InvalidUse("this consumer has no group, so there is nothing to commit to; give it a group")
        asked = {tp: OffsetAndMetadata(each) for tp, each in self._handover.committable().items()}
        commit = self._commits.ask(asked if offsets is None else offsets)
        if self.loop.inside:
            self.loop.call(lambda consumer: self._commits.flush(consumer, {}, CLOSE_S))
        else:
            self.loop.nudge()
        if wait:
            commit.wait()

    def positions(self) -> Mapping[TopicPartition, Offset]:
        """The offsets after what was handed out, of each partition of which something was."""
        return self._handover.positions()

    def group_metadata(self) -> object:
        """For a producer's send_offsets_to_transaction."""
        return self.loop.call(lambda consumer: consumer.consumer_group_metadata())

    # ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def assignment(self) -> set[TopicPartition]:
        return self._handover.assignment()

    def on_assignment(self, provider: OffsetProvider) -> None:
        """Let `provider(partitions)` say where to start; None for a partition: at its committed offset.

        It runs in the poll thread. If it raises, these partitions are not read, and `take` raises that.
        """
        self._rebalances.providers.append(provider)

    def on_revocation(self, hook: RevocationHook) -> None:
        """Call `hook(partitions, lost)` in the poll thread, before messages in hand are waited for.

        It may `rewind` messages that were taken and not begun: they are not waited for.
        """
        self._rebalances.hooks.append(hook)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _subscribe(self, consumer: "KafkaConsumer") -> None:
        if self.options.group is None or not self.options.topics:
            return
        consumer.subscribe(
            list(self.options.topics),
            on_assign=self._rebalances.assigned,
            on_revoke=self._rebalances.revoked,
            on_lost=self._rebalances.lost,
        )

    def _committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit without being asked."""
        if not self.auto_commit:
            return {}
        ahead = self.options.delivery == "at-most-once"
        found = self._handover.positions() if ahead else self._handover.committable()
        return {tp: OffsetAndMetadata(offset) for tp, offset in found.items()}

    def _commit_ahead(self, messages: Sequence[AnyMessage]) -> None:
        """At most once: first the commit, then the message."""
        ends = {message.topic_partition: OffsetAndMetadata(message.offset + 1) for message in messages}
        try:
            self.commit(ends)
        except BaseException:
            self.rewind(messages)
            raise

    def _filtered(self, messages: list[AnyMessage]) -> list[AnyMessage]:
        """Messages that pass `where`; the others are done."""
        if not self._filter.active:
            return messages
        try:
            kept, passed_over = self._filter.split(messages)
        except BaseException:
            self.rewind(messages)
            raise
        self.done_many(passed_over)
        return kept

    @property
    def passed_over(self) -> int:
        """Messages that `where` kept away from the body."""
        return self._filter.passed_over


def close_all() -> None:
    """Close consumers that nobody closed, at the end of the process."""
    for engine in list(_running):
        with contextlib.suppress(Exception):
            engine.close()


atexit.register(close_all)
