"""Handover: what the poll thread and the body share, under one lock. Knows neither librdkafka nor commits.

The poll thread puts runs of messages, assigns and revokes partitions; any other thread takes messages. The lock is
reentrant, so that a signal handler may call `wakeup` wherever it interrupts its thread.
"""

import itertools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.batches import Piece
from moldau.client.consumer.buffers import Buffer, Run, Slice
from moldau.client.consumer.leases import Lease
from moldau.client.consumer.partitions import named
from moldau.client.consumer.progress import Handed, OffsetRange, Progress
from moldau.client.errors import Closed, InvalidUse
from moldau.client.message import Deserializers, Message

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage

T = TypeVar("T")
AnyMessage: TypeAlias = Message[Any, Any]
NOWHERE: Mapping[TopicPartition, Offset] = MappingProxyType({})
CHECK_S = 0.1  # between two looks at messages in hand


class Handover:
    """Messages that came, messages in hand, and the partitions that are assigned."""

    def __init__(self, most_messages: int, most_bytes: int, deserializers: Deserializers) -> None:
        self.changed = threading.Condition()
        self.buffer: Buffer[KafkaMessage] = Buffer(most_messages, most_bytes)
        self._deserializers = deserializers
        self._progress: dict[TopicPartition, Progress[Handed]] = {}
        self._seeks: dict[TopicPartition, Offset] = {}  # asked for, and not applied yet by the poll thread
        self._sought: dict[TopicPartition, Offset] = {}  # the last of them, or where the partition started
        self._ends: dict[TopicPartition, Offset] = {}  # up to here all came; markers of transactions are before it
        self._listeners: list[Callable[[], None]] = []
        self._failure: BaseException | None = None
        self._problem: BaseException | None = None  # raised once
        self._woken = False
        self._closed = False
        self.awaited = False  # whether somebody waits for messages to be done
        self.epoch = 0  # counts the events after which messages that were taken may have to be given back
        self._lease: Lease[AnyMessage] | None = None
        self._paused: set[TopicPartition] = set()  # by the user
        self._parked: set[TopicPartition] = set()  # by a run, which has enough of them
        self._revoked: set[TopicPartition] = set()  # nothing of them is handed out any more
        self._waiting = 0

    # ── the body ────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, most: int, timeout: float | None) -> list[AnyMessage] | None:
        """Up to `most` messages; empty after `wakeup`; None when the time is over."""
        return self._await(lambda: self.take_now(most), timeout)

    def take_ranges(self, most: int, timeout: float | None) -> "Piece[KafkaMessage] | None":
        """The same as librdkafka's messages; the neighbours of a partition are done together."""
        return self._await(lambda: self.take_ranges_now(most), timeout)

    def _await(self, take: Callable[[], T | None], timeout: float | None) -> T | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        with self.changed:
            while (found := take()) is None:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._waiting += 1
                try:
                    self.changed.wait(left)
                finally:
                    self._waiting -= 1
            return found

    def take_now(self, most: int, without: Collection[TopicPartition] = ()) -> list[AnyMessage] | None:
        """Up to `most` messages, none of partitions `without`; empty after `wakeup`; None if there is nothing yet."""
        with self.changed:
            slices = self._next_slices(most, without)
            if slices is None:
                return None
            found: list[AnyMessage] = []
            for part in slices:
                messages: list[AnyMessage] = [Message(record, self._deserializers) for record in part.messages]
                # First the progress: should Ctrl-C come in between, the messages are handed out again.
                self._progress[part.run.partition].hand_out(messages)
                found += messages
            self._remove(slices)
            return found

    def take_ranges_now(self, most: int) -> "Piece[KafkaMessage] | None":
        """The same without waiting; None if there is nothing yet."""
        with self.changed:
            slices = self._next_slices(most)
            if slices is None:
                return None
            records: list[KafkaMessage] = []
            ranges: list[OffsetRange] = []
            for part in slices:
                messages = part.messages
                first, last = messages[0].offset() or 0, messages[-1].offset() or 0
                handed = OffsetRange(part.run.partition, first, last + 1)
                self._progress[part.run.partition].hand_out_range(handed, last + 1)
                ranges.append(handed)
                records += messages
            self._remove(slices)
            return Piece(records, ranges)

    def _next_slices(self, most: int, without: Collection[TopicPartition] = ()) -> "list[Slice[KafkaMessage]] | None":
        """What to hand out; empty after `wakeup`; None if there is nothing yet. Raises what there is to raise."""
        self._call_back()
        self._check()
        if self._woken:
            self._woken = False
            return []
        return self.buffer.peek(most, without) or None

    def _remove(self, slices: "list[Slice[KafkaMessage]]") -> None:
        was_full = self.buffer.full
        self.buffer.remove(slices)
        if was_full:
            self.changed.notify_all()

    def lease(self, messages: Sequence[AnyMessage], epoch: int) -> Lease[AnyMessage]:
        """Messages that were taken in this epoch, as a lease; without those that have to be given back already."""
        with self.changed:
            self._call_back()
            if epoch != self.epoch:
                messages = self._still_ours(messages)
            self._lease = Lease(messages)
            return self._lease

    def goes_on(self, lease: Lease[AnyMessage], at: int) -> bool:
        """Whether the loop may begin this message; called when the limit of its lease was reached."""
        with self.changed:
            if lease is self._lease:
                if self._woken or self._closed or self._failure is not None or self._problem is not None:
                    self._lease = None
                    self._put_back(lease.end_at(at))
                else:
                    lease.limit = lease.end
            return at < lease.end

    def end_lease(self) -> None:
        """Call the messages back that the loop has not begun."""
        with self.changed:
            self._call_back()

    def done(self, messages: Iterable[Handed]) -> None:
        for message in messages:
            message.is_done = True
        if self.awaited:
            self.notify()

    def notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def leave(self, messages: Iterable[Handed]) -> None:
        """These messages are not done, and nobody works on them: a revocation need not wait for them."""
        with self.changed:
            for message in messages:
                progress = self._progress.get(message.topic_partition)
                if progress is not None:
                    progress.give_back(message.offset)
            self.changed.notify_all()

    def rewind(self, messages: Iterable[Handed]) -> None:
        """Hand these messages, and those that follow, out again. Of partitions that are gone, others will read them."""
        with self.changed:
            self._call_back()
            lowest: dict[TopicPartition, Offset] = {}
            for message in messages:
                tp = message.topic_partition
                progress = self._progress.get(tp)
                if progress is None or not progress.covers(message.offset):
                    continue  # of an assignment that is over
                if tp in self._revoked:
                    progress.give_back(message.offset)
                else:
                    lowest[tp] = min(message.offset, lowest.get(tp, message.offset))
            for tp, offset in lowest.items():
                self._progress[tp].rewind(offset)
                self._seeks[tp] = offset
                self._ends.pop(tp, None)
            self.buffer.drop(lowest.keys())
            self.changed.notify_all()

    def give_back(self, messages: Iterable[AnyMessage]) -> None:
        """Do not wait for these messages, if their partitions are being revoked; if not, this does nothing."""
        with self.changed:
            for message in messages:
                if message.topic_partition in self._revoked and message.topic_partition in self._progress:
                    self._progress[message.topic_partition].give_back(message.offset)
            self.changed.notify_all()

    def seek(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Go on at these offsets; negative ones are librdkafka's for the beginning and the end."""
        with self.changed:
            self._call_back()
            missing = [tp for tp in offsets if tp not in self._progress]
            if missing:
                raise InvalidUse(f"cannot seek in {named(missing)}: not assigned to this consumer")
            for tp, offset in offsets.items():
                self._progress[tp].seek(offset if offset >= 0 else None)
                self._seeks[tp] = self._sought[tp] = offset
                self._ends.pop(tp, None)
            self.buffer.drop(offsets.keys())
            self.changed.notify_all()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these partitions. What is buffered would keep others out: it is fetched again later."""
        self._keep_back(partitions, self._paused)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        with self.changed:
            self._paused.difference_update(partitions)

    def park(self, partitions: Collection[TopicPartition]) -> None:
        """The same, for a run."""
        self._keep_back(partitions, self._parked)

    def unpark(self, partitions: Iterable[TopicPartition]) -> None:
        with self.changed:
            self._parked.difference_update(partitions)

    def kept_back(self) -> set[TopicPartition]:
        """Partitions that are paused or parked."""
        with self.changed:
            return self._paused | self._parked

    def paused(self) -> set[TopicPartition]:
        """Partitions that the user has paused."""
        with self.changed:
            return set(self._paused)

    # ── messages that somebody else fetches ─────────────────────────────────────────────────────────────────────────

    def hand_out_range(self, partition: TopicPartition, first: Offset, end: Offset) -> OffsetRange | None:
        """Messages that did not come through the buffer; None if they must not be handed out any more."""
        with self.changed:
            progress = self._progress.get(partition)
            if progress is None or partition in self._revoked or partition in self._seeks:
                return None
            handed = OffsetRange(partition, first, end)
            progress.hand_out_range(handed, end)
            return handed

    def drop_all(self) -> None:
        """Empty the buffer; what was in it is still to be handed out."""
        with self.changed:
            self._call_back()
            for tp in self._progress:
                self._fetch_again(tp, self.buffer.first(tp))
            self.buffer.drop(self._progress.keys())

    def take_seeks(self) -> dict[TopicPartition, Offset]:
        """Seeks that the caller applies."""
        with self.changed:
            taken = {tp: offset for tp, offset in self._seeks.items() if tp not in self._paused}
            for tp in taken:
                del self._seeks[tp]
            return taken

    def fetch_from(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """Let the poll thread go on at these offsets, unless others are sought."""
        with self.changed:
            self.buffer.drop(offsets.keys())
            for tp, offset in offsets.items():
                if tp in self._progress:
                    self._seeks.setdefault(tp, offset)
                    self._ends.pop(tp, None)

    def pause_for(self, seconds: float) -> bool:
        """Wait until the time is over or something changed; False after `wakeup`. Raises as `take` does."""
        with self.changed:
            self._check()
            if not self._woken and seconds > 0:
                self.changed.wait(seconds)
            woken, self._woken = self._woken, False
            return not woken

    # ── state ───────────────────────────────────────────────────────────────────────────────────────────────────────

    def wakeup(self) -> None:
        """End the `take` that waits, or else the next one."""
        self._woken = True
        self._interrupt()

    def committable(self) -> dict[TopicPartition, Offset]:
        """Of each partition of which something was handed out, the first offset that is not done."""
        with self.changed:
            found = {tp: progress.committable for tp, progress in self._progress.items()}
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def positions(self) -> dict[TopicPartition, Offset]:
        """Of each partition of which something was handed out, the offset after it."""
        with self.changed:
            found = {tp: progress.position for tp, progress in self._progress.items()}
            lease = self._lease
            for message in reversed(lease.messages[lease.at + 1 : lease.end] if lease is not None else ()):
                found[message.topic_partition] = message.offset
        return {tp: offset for tp, offset in found.items() if offset is not None}

    def assignment(self) -> set[TopicPartition]:
        with self.changed:
            return set(self._progress)

    def next_offset(self, partition: TopicPartition) -> Offset | None:
        """The offset of a partition's next message, or the logical one that was sought; None if nothing is known."""
        with self.changed:
            position = self.positions().get(partition)
            record = self.buffer.first(partition)
            progress = self._progress.get(partition)
            if record is None and progress is not None and position == progress.position:  # nothing was not begun
                end = self._ends.get(partition, -1)
                if end > (-1 if position is None else position):
                    return end
            if position is not None:
                return position
            return record.offset() if record is not None else self._sought.get(partition)

    def in_hand(self, partitions: Iterable[TopicPartition] | None = None) -> list[Handed]:
        """Messages that are handed out and not done."""
        with self.changed:
            wanted = self._progress if partitions is None else partitions
            found = [self._progress[tp].in_hand() for tp in wanted if tp in self._progress]
        return [message for messages in found for message in messages]

    def add_listener(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call it, from any thread, whenever `take` may have an outcome. Returns what removes it."""
        self._listeners.append(callback)
        return lambda: self._listeners.remove(callback)

    # ── the poll thread ─────────────────────────────────────────────────────────────────────────────────────────────

    def put(self, runs: Sequence[Run["KafkaMessage"]]) -> None:
        """Add messages; those of partitions that are gone, or about to be sought in, are dropped."""
        with self.changed:
            kept = []
            for run in runs:
                if run.partition not in self._progress or run.partition in self._seeks:
                    continue
                if run.partition in self._paused or run.partition in self._parked:
                    self._fetch_again(run.partition, run.messages[0])
                else:
                    kept.append(run)
            self.buffer.add(kept)
            if self._waiting:
                self.changed.notify_all()
        if kept:
            self._tell()

    def reach_end(self, partition: TopicPartition, offset: Offset) -> None:
        """All messages of the partition before this offset were put."""
        with self.changed:
            if partition in self._progress and partition not in self._seeks:
                self._ends[partition] = offset

    def owner(self, partition: TopicPartition) -> object:
        """Changes whenever the partition is assigned anew; None while it is not assigned."""
        return self._progress.get(partition)

    def assign(self, partitions: Iterable[TopicPartition], starts: Mapping[TopicPartition, Offset] = NOWHERE) -> None:
        """Partitions, and where some of them start: at an offset, or at a logical one."""
        with self.changed:
            self._progress |= {tp: Progress() for tp in partitions}
            self._sought.update(starts)
            self.changed.notify_all()

    def revoke(self, partitions: Collection[TopicPartition]) -> None:
        """Hand out nothing of these partitions any more."""
        with self.changed:
            self.epoch += 1
            self._call_back()
            self.buffer.drop(partitions)
            self._revoked.update(partitions)
            for tp in partitions:
                self._seeks.pop(tp, None)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        with self.changed:
            self.buffer.drop(partitions)
            self._paused.difference_update(partitions)
            self._parked.difference_update(partitions)
            self._revoked.difference_update(partitions)
            for tp in partitions:
                self._progress.pop(tp, None)
                self._seeks.pop(tp, None)
                self._sought.pop(tp, None)
                self._ends.pop(tp, None)
            self.changed.notify_all()

    def wait_until_done(
        self, partitions: Collection[TopicPartition], timeout: float, meanwhile: Callable[[], None]
    ) -> bool:
        """Wait until no message of these partitions is in hand; calls `meanwhile` every now and then."""
        deadline = time.monotonic() + timeout
        self.awaited = True
        try:
            while self.in_hand(partitions) and not self._closed:
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                meanwhile()
                with self.changed:
                    self.changed.wait(min(left, CHECK_S))
            return not self.in_hand(partitions)
        finally:
            self.awaited = False

    def wait_for_room(self, timeout: float) -> None:
        """Wait until the body has taken something, or anything else changed."""
        with self.changed:
            if self.buffer.full and not self._closed:
                self.changed.wait(timeout)

    def due_seeks(self) -> dict[TopicPartition, Offset]:
        return dict(self._seeks)

    def sought(self, partition: TopicPartition, offset: Offset) -> None:
        """A seek was applied; a later one stays."""
        with self.changed:
            if self._seeks.get(partition) == offset:
                del self._seeks[partition]

    def fail(self, failure: BaseException) -> None:
        """Let every `take` from now on raise this."""
        with self.changed:
            self._failure = self._failure or failure
        self._interrupt()

    def report(self, problem: BaseException) -> None:
        """Let the next `take` raise this, once."""
        with self.changed:
            self._problem = self._problem or problem
        self._interrupt()

    def close(self) -> None:
        self._closed = True
        self._interrupt()

    # ── inside ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _keep_back(self, partitions: Collection[TopicPartition], why: set[TopicPartition]) -> None:
        with self.changed:
            self._call_back()
            for tp in partitions:
                if tp in self._progress:
                    why.add(tp)
                    self._fetch_again(tp, self.buffer.first(tp))
            self.buffer.drop(partitions)

    def _fetch_again(self, partition: TopicPartition, record: "KafkaMessage | None") -> None:
        """Seek to a record that is dropped, unless another place is sought already."""
        offset = None if record is None else record.offset()
        if offset is not None:
            self._seeks.setdefault(partition, offset)
            self._ends.pop(partition, None)

    def _call_back(self) -> None:
        """Put messages of the lease that are not begun back into the buffer."""
        lease, self._lease = self._lease, None
        if lease is not None:
            self._put_back(lease.call_back())

    def _put_back(self, messages: Sequence[AnyMessage]) -> None:
        runs: list[Run[KafkaMessage]] = []
        for tp, group in itertools.groupby(messages, key=_partition):
            part = list(group)
            progress = self._progress.get(tp)
            if progress is not None:
                progress.rewind(part[0].offset)
                records = [message.record for message in part]
                runs.append(Run(tp, records, sum(map(len, records))))
        self.buffer.add_first(runs)

    def _still_ours(self, messages: Sequence[AnyMessage]) -> list[AnyMessage]:
        """Messages of partitions that are not revoked; the others are given back."""
        kept = []
        for message in messages:
            progress = self._progress.get(message.topic_partition)
            if progress is not None and message.topic_partition not in self._revoked:
                kept.append(message)
            elif progress is not None:
                progress.give_back(message.offset)
        return kept

    def _interrupt(self) -> None:
        """There is something to tell; a signal handler may call this in the middle of anything."""
        lease = self._lease
        if lease is not None:
            lease.close_limit()
        self.notify()
        self._tell()

    def _check(self) -> None:
        if self._closed:
            raise Closed("the consumer was closed")
        if self._failure is not None:
            raise self._failure
        if self._problem is not None:
            problem, self._problem = self._problem, None
            raise problem

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()


def _partition(message: AnyMessage) -> TopicPartition:
    return message.topic_partition
