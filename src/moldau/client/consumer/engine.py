"""ConsumerEngine: poll thread, handover, progress and commits of one consumer. Façades, transactions and the runner
are built on it, and use nothing else.
"""

import atexit
import logging
import os
import time
import weakref
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.batches import Gathering, Piece, Take
from moldau.client.consumer.commits import Commits, OffsetAndMetadata, Offsets
from moldau.client.consumer.filters import Filter
from moldau.client.consumer.handover import AnyMessage, Handover
from moldau.client.consumer.leases import Lease
from moldau.client.consumer.options import PATIENCE, ConsumerOptions
from moldau.client.consumer.partitions import named
from moldau.client.consumer.poll_loop import CLOSE_S, PollLoop
from moldau.client.consumer.progress import Handed, OffsetRange
from moldau.client.consumer.rebalances import OffsetProvider, Rebalances, RevocationHook
from moldau.client.consumer.subscriptions import start_offset, subscription_of, with_offsets
from moldau.client.errors import ClientError, Closed, Fenced, InvalidUse
from moldau.client.interceptors import Interceptors
from moldau.client.message import MessageBatch

logger = logging.getLogger(__name__)

LEASE = 250  # messages that a loop takes at once

_running: "weakref.WeakSet[ConsumerEngine]" = weakref.WeakSet()


class ConsumerEngine:
    """One consumer without a façade."""

    def __init__(self, options: ConsumerOptions) -> None:
        self.options = options
        self.auto_commit = options.auto_commit
        self._filter = Filter(options.where)
        self._handover = Handover(options.buffer_messages, options.buffer_bytes, options.deserializers)
        self._interceptors = Interceptors()
        self._on_consume = [each.on_consume for each in options.interceptors]
        self._on_commit = [each.on_commit for each in options.interceptors]
        self._commits = Commits(self._tell_committed if options.interceptors else None)
        # Nothing has to be done with messages but to hand them out.
        self._plain = not (self._filter.active or self._on_consume or options.delivery == "at-most-once")
        self._rebalances = Rebalances(
            self._handover,
            self._commits,
            options.listener,
            self._committable,
            incremental=options.incremental,
            patience_s=options.max_poll_interval_s * PATIENCE,
        )
        subscription = subscription_of(options, self._rebalances)
        self.loop = PollLoop(options, self._handover, self._commits, self._rebalances, self._committable, subscription)
        self._loop_has: Sequence[Handed] = ()  # what a loop over messages or batches has in hand
        self._loop_lease: Lease[AnyMessage] | None = None
        self._taken_in = 0  # the epoch
        self._started = False
        self._process = os.getpid()
        self._closed = False

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Start the poll thread, and subscribe; a second call does nothing."""
        if self._closed:
            raise Closed("the consumer was closed")
        if self._started and self._process != os.getpid():
            raise InvalidUse("this consumer was started before the process was forked; make one after the fork")
        if not self._started:
            self._started = True
            self._process = os.getpid()
            self.loop.start()
            _running.add(self)

    def close(self, timeout: float = CLOSE_S) -> None:
        """Commit what is done, leave the group, and end the thread. Messages in hand are not waited for."""
        self.abandon(timeout)
        if self in _running and self._process == os.getpid() and not self.loop.inside:
            _running.discard(self)
            if not self.loop.join(timeout):
                logger.warning("The consumer is still closing after %.0f s; its group may notice only later", timeout)

    def abandon(self, timeout: float = CLOSE_S) -> None:
        """The same without waiting: for consumers that nobody closed."""
        if self._closed or self._process != os.getpid():
            return
        self._closed = True
        self._handover.close()
        self.loop.stop(timeout)

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, most: int, timeout: float | None) -> list[AnyMessage]:
        """Up to `most` messages, in hand until they are done; [] when the time is over or after `wakeup`.

        Raises `ClientError` on errors that do not pass, and `Closed`.
        """
        return self.take_in_time(most, timeout) or []

    def take_in_time(self, most: int, timeout: float | None) -> list[AnyMessage] | None:
        """The same, but None when the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            self._taken_in = self._handover.epoch
            messages = self._handover.take(most, None if deadline is None else max(deadline - time.monotonic(), 0))
            if not messages:
                return messages
            kept = self._prepare(messages)
            if kept:
                return kept

    def take_now(self, most: int, without: Collection[TopicPartition] = ()) -> list[AnyMessage] | None:
        """The same without waiting, and without some partitions; None if there is nothing yet, [] after `wakeup`."""
        while True:
            self._taken_in = self._handover.epoch
            messages = self._handover.take_now(most, without)
            if not messages:
                return messages
            kept = self._prepare(messages)
            if kept:
                return kept

    # ── one loop over messages, which are done when the loop asks for more ──────────────────────────────────────────

    def messages(self) -> Iterator[AnyMessage]:
        """Messages one by one, until `wakeup`; each is done when the next one is asked for."""
        self.finish()
        handover = self._handover
        try:
            while taken := self.take(LEASE, None):
                lease = self.lease(taken)
                for at, message in enumerate(lease.messages):
                    lease.at = at
                    if at >= lease.limit and not handover.goes_on(lease, at):
                        break
                    yield message
                    message.is_done = True
                    if handover.awaited:
                        handover.notify()
        finally:
            self.leave()

    def batches(self, most: int, wait: float) -> Iterator[Sequence[AnyMessage]]:
        """Batches of messages, until `wakeup`; each is done when the next one is asked for.

        A batch is yielded when it is full, or `wait` seconds after its first message came.
        """
        self.finish()
        take: Take[Any] = self._handover.take_ranges if self._plain else self._take_piece
        try:
            while True:
                found: Gathering[Any] = Gathering(most, wait)
                with self.gathering(found):
                    while found.add(take(found.room, found.left)):
                        pass
                if found.messages:
                    yield self.batch_of(found.messages)
                    self.finish()
                if found.woken:
                    return
        finally:
            self.leave()

    @contextmanager
    def gathering(self, batch: Gathering[Any]) -> Iterator[None]:
        """In it a batch is gathered, which the loop has in hand then; if that fails it is handed out again."""
        try:
            yield
        except BaseException:
            self.rewind(batch.handed)
            raise
        self._loop_has = batch.handed

    def take_piece_now(self, most: int) -> Piece[Any] | None:
        """Messages for `batch_of`, and what is done when they are; None if there is nothing yet, [] after `wakeup`."""
        if self._plain:
            return self._handover.take_ranges_now(most)
        messages = self.take_now(most)
        return None if messages is None else Piece(messages, messages)

    def batch_of(self, messages: list[Any]) -> Sequence[AnyMessage]:
        """What a body gets for what `take_piece_now` returned."""
        return MessageBatch(messages, self.options.deserializers) if self._plain else messages

    def _take_piece(self, most: int, timeout: float | None) -> Piece[AnyMessage] | None:
        messages = self.take_in_time(most, timeout)
        return None if messages is None else Piece(messages, messages)

    def lease(self, messages: Sequence[AnyMessage]) -> Lease[AnyMessage]:
        """Messages that were just taken, for a loop that works through them."""
        self._loop_lease = self._handover.lease(messages, self._taken_in)
        return self._loop_lease

    def goes_on(self, lease: Lease[AnyMessage], at: int) -> bool:
        """Whether the loop may begin this message; to be asked when it has reached the limit of its lease."""
        return self._handover.goes_on(lease, at)

    def hold(self, messages: Sequence[Handed]) -> None:
        """These messages are what the loop has in hand."""
        self._loop_has = messages

    def finish(self) -> None:
        """The loop asks for more, or says so: what it has in hand is done."""
        in_hand = self._in_loop()
        self._loop_has, self._loop_lease = (), None
        self._handover.done(in_hand)

    def leave(self) -> None:
        """The loop was left: what it has in hand is not done, unless it asks for more, and nothing waits for it."""
        self._loop_has, self._loop_lease = self._in_loop(), None
        self._handover.leave(message for message in self._loop_has if not message.is_done)

    def _in_loop(self) -> Sequence[Handed]:
        """What the loop has in hand; messages of its lease that are not begun are called back."""
        self._handover.end_lease()
        lease = self._loop_lease
        return self._loop_has if lease is None or not 0 <= lease.at < lease.end else (lease.messages[lease.at],)

    # ── messages that somebody else fetches ─────────────────────────────────────────────────────────────────────────

    def withhold(self) -> None:
        """From now on librdkafka fetches nothing, and keeps the membership only."""
        self.loop.call(self.loop.withhold)
        self._handover.drop_all()

    def release(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Let librdkafka fetch again, from these positions on."""
        self._handover.fetch_from(positions)
        if not self._closed:
            self.loop.post(self.loop.release)

    def hand_out_range(self, partition: TopicPartition, first: Offset, end: Offset) -> OffsetRange | None:
        """Messages from `first` to before `end`, in hand until they are done; None if they are not wanted any more."""
        return self._handover.hand_out_range(partition, first, end)

    def take_seeks(self) -> dict[TopicPartition, Offset]:
        """Where to go on, of partitions that were sought in; the caller does."""
        return self._handover.take_seeks()

    def pause_for(self, seconds: float) -> bool:
        """Wait for a while, or until something changed; False after `wakeup`."""
        return self._handover.pause_for(seconds)

    # ── progress ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def blocks(self) -> bool:
        """Whether taking messages asks a broker: at most once means to commit first."""
        return self.options.delivery == "at-most-once" and self.auto_commit

    def done(self, message: AnyMessage) -> None:
        """A message was processed; from any thread, in any order."""
        self._handover.done((message,))

    def done_many(self, messages: Iterable[Handed]) -> None:
        self._handover.done(messages)

    def rewind(self, messages: Iterable[Handed]) -> None:
        """Messages were not processed: hand them, and those that follow in their partitions, out again."""
        self._handover.rewind(messages)
        self.loop.nudge()

    def give_back(self, messages: Iterable[AnyMessage]) -> None:
        """Messages of partitions that are being revoked will not be processed here; do not wait for them."""
        self._handover.give_back(messages)

    def in_hand(self) -> list[Handed]:
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
        if self._closed and not self.loop.inside:  # a rebalance listener may commit while it is being closed
            raise Closed("the consumer was closed")
        if self.options.group is None:
            raise InvalidUse("this consumer has no group, so there is nothing to commit to; give it a group")
        if offsets is None:
            offsets = {tp: OffsetAndMetadata(each) for tp, each in self._handover.committable().items()}
        gone = offsets.keys() - self._handover.assignment()
        if gone:
            raise Fenced(
                "ASSIGNMENT_LOST", f"{named(gone)} not assigned to this consumer: others may commit, and it must not"
            )
        commit = self._commits.ask(offsets)
        if self.loop.inside:
            self.loop.call(lambda consumer: self._commits.flush(consumer, {}, CLOSE_S))
        else:
            self.loop.nudge()
        if wait:
            commit.wait()

    def positions(self) -> Mapping[TopicPartition, Offset]:
        """The offsets after what was handed out, of each partition of which something was."""
        return self._handover.positions()

    def group_metadata(self) -> bytes:
        """For a producer's send_offsets_to_transaction."""
        metadata: bytes = self.loop.call(lambda consumer: consumer.consumer_group_metadata())
        return metadata

    @property
    def all_down(self) -> bool:
        """Whether no broker can be reached, as far as is known."""
        return self.loop.all_down

    # ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def assignment(self) -> set[TopicPartition]:
        return self._handover.assignment()

    def assign(self, offsets: Mapping[TopicPartition, Offset | None]) -> None:
        """Read these partitions and no others, from these offsets on; None: from the committed offset, or `start`."""
        if self.options.topics:
            raise InvalidUse("this consumer has topics; assign needs one that was made without topics")
        wanted = with_offsets(offsets, start_offset(self.options))
        self.start()
        self.loop.call(lambda consumer: self._rebalances.replace(consumer, wanted))

    def seek(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Go on at these offsets, or librdkafka's logical ones for beginning and end."""
        self._handover.seek(offsets)
        self.loop.nudge()

    def next_offset(self, partition: TopicPartition) -> Offset | None:
        """The offset of the next message, or the logical one that was sought; None if nothing is known yet."""
        return self._handover.next_offset(partition)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these partitions until they are resumed."""
        self.loop.pause(partitions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.loop.resume(partitions)

    def paused(self) -> set[TopicPartition]:
        return self._handover.paused()

    def park(self, partitions: Collection[TopicPartition]) -> None:
        """As `pause`, for a run that has enough of these partitions; what the user pauses and resumes is apart."""
        self.loop.park(partitions)

    def unpark(self, partitions: Collection[TopicPartition]) -> None:
        self.loop.unpark(partitions)

    def on_assignment(self, provider: OffsetProvider) -> Callable[[], None]:
        """Let `provider(partitions)` say where to start; None for a partition: at its committed offset.

        It runs in the poll thread. If it raises, these partitions are not read, and `take` raises that. Returns what
        removes it.
        """
        self._rebalances.providers.append(provider)
        return lambda: self._rebalances.providers.remove(provider)

    def on_revocation(self, hook: RevocationHook) -> Callable[[], None]:
        """Call `hook(partitions, lost)` in the poll thread, before messages in hand are waited for.

        It may give back messages that were taken and not begun: they are not waited for. Returns what removes it.
        """
        self._rebalances.hooks.append(hook)
        return lambda: self._rebalances.hooks.remove(hook)

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _committable(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What to commit without being asked."""
        if not self.auto_commit:
            return {}
        ahead = self.options.delivery == "at-most-once"
        found = self._handover.positions() if ahead else self._handover.committable()
        return {tp: OffsetAndMetadata(offset) for tp, offset in found.items()}

    def _commit_ahead(self, messages: Sequence[AnyMessage]) -> None:
        """At most once: first the commit, then the message."""
        self.commit({message.topic_partition: OffsetAndMetadata(message.offset + 1) for message in messages})

    def _prepare(self, messages: list[AnyMessage]) -> list[AnyMessage]:
        """What has to happen to messages before the body gets them. What it does not get is done."""
        if self._plain:
            return messages
        try:
            if self.blocks:
                self._commit_ahead(messages)
            kept = self._filter.keep(messages)
            if self._on_consume and kept:
                kept = self._interceptors.pass_through(self._on_consume, kept)
        except BaseException:
            self.rewind(messages)
            raise
        if len(kept) < len(messages):
            left = {id(message) for message in kept}
            self.done_many(message for message in messages if id(message) not in left)
        return list(kept)

    def _tell_committed(self, offsets: Offsets, failure: ClientError | None) -> None:
        if failure is None:
            self._interceptors.tell(self._on_commit, {tp: each.offset for tp, each in offsets.items()})

    @property
    def passed_over(self) -> int:
        """Messages that `where` kept away from the body."""
        return self._filter.passed_over


def close_all() -> None:
    """Close consumers that nobody closed, at the end of the process."""
    for engine in list(_running):
        engine.close()


atexit.register(close_all)
