"""Consumer: iterate over messages of topics, as a member of a group or on your own. Its work is done by the engine."""

import dataclasses
import datetime
import threading
import uuid
import weakref
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias

from moldau.base.ids import Offset, TopicPartition
from moldau.client.arguments import check_number, check_seconds, partition_of, partitions_of
from moldau.client.consumer.batches import check_batch
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.lanes import Order
from moldau.client.consumer.options import (
    BUFFER_BYTES,
    BUFFER_MESSAGES,
    COMMIT_INTERVAL_S,
    CommitMode,
    ConsumerOptions,
    Delivery,
    Protocol,
    Start,
    Topics,
    Where,
    read_options,
)
from moldau.client.consumer.poll_loop import CLOSE_S
from moldau.client.consumer.positions import Positions
from moldau.client.consumer.queries import Queries
from moldau.client.consumer.rebalances import RebalanceListener
from moldau.client.consumer.retries import Retry
from moldau.client.consumer.runner import RunOptions
from moldau.client.consumer.runs import Runs
from moldau.client.errors import InvalidUse
from moldau.client.interceptors import ConsumerInterceptor
from moldau.client.message import Deserializers, Message
from moldau.client.serializers.choose import deserializer_for
from moldau.client.serializers.port import DeserializerKind, K, V
from moldau.client.settings import Properties

if TYPE_CHECKING:
    import pyarrow as pa

    from moldau.client.consumer.transactions import Transactions

BATCH = 500
ROWS = 10_000
FILL_S = 0.1  # how long a batch waits for more messages

Arrow: TypeAlias = "Generator[pa.RecordBatch, None, None]"
Committable: TypeAlias = (
    Message[Any, Any] | Iterable[Message[Any, Any]] | Mapping[TopicPartition, OffsetAndMetadata | Offset]
)


class Consumer(Generic[K, V]):
    """`for message in Consumer("localhost:9092", "orders", group="billing", value=Order): …`

    Asking for the next message says that the one before is done. What is done is committed every `commit_interval`
    seconds, when partitions are revoked, and when the consumer is closed. After `break` or an exception the message in
    hand is not done, unless the consumer is asked for more; `commit(message)` says that it is.
    Without a group it reads all partitions, and commits nothing.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        *topics: Topics,
        group: str | None = None,
        key: DeserializerKind[K] | None = None,
        value: DeserializerKind[V] | None = None,
        delivery: Delivery = "at-least-once",
        start: Start = "earliest",
        protocol: Protocol = "classic",
        where: Where | None = None,
        retry: Retry | None = None,
        concurrency: int = 1,
        order: Order = "partition",
        listener: RebalanceListener | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        commit: CommitMode = "auto",
        commit_interval: float = COMMIT_INTERVAL_S,
        instance_id: str | None = None,
        buffer_messages: int = BUFFER_MESSAGES,
        buffer_bytes: int = BUFFER_BYTES,
        client_id: str | None = None,
        properties: Properties = None,
        on_stats: Any = None,
    ) -> None:
        if retry is not None and not isinstance(retry, Retry):
            raise InvalidUse(f"retry={retry!r}: give a Retry(…)")
        retry_topic = () if retry is None or retry.topic is None else (retry.topic,)
        if retry is not None and retry.topic in topics:
            raise InvalidUse(f"{retry.topic} cannot be both: a topic that is read, and that of its retries")
        self._set_up(
            read_options(
                bootstrap,
                (*topics, *retry_topic),
                group=group,
                deserializers=Deserializers(deserializer_for(key), deserializer_for(value)),
                delivery=delivery,
                start=start,
                protocol=protocol,
                where=where,
                listener=listener,
                interceptors=interceptors,
                commit=commit,
                commit_interval=commit_interval,
                instance_id=instance_id,
                buffer_messages=buffer_messages,
                buffer_bytes=buffer_bytes,
                client_id=client_id,
                properties=properties,
                on_stats=on_stats,
            ),
            RunOptions(concurrency, order, retry),
        )

    def _set_up(self, options: ConsumerOptions, run_options: RunOptions) -> None:
        self.engine = ConsumerEngine(options)
        queries = Queries(options)
        self._positions = Positions(self.engine, queries)
        self._runs = Runs(self.engine, run_options, queries)
        self._body = 0  # the thread that takes messages
        self._transactions: weakref.ref[Transactions[K, V]] | None = None
        self._tails: weakref.WeakSet[Consumer[K, V]] = weakref.WeakSet()
        # The poll thread keeps the engine alive, and the engine knows nothing of this object.
        weakref.finalize(self, self.engine.abandon).atexit = False

    # ── messages ────────────────────────────────────────────────────────────────────────────────────────────────────

    def __iter__(self) -> Iterator[Message[K, V]]:
        """Messages one by one, until `wakeup`. It can be iterated again."""
        yield from self._begin().messages()  # and not return: the loop keeps this object alive

    def poll(self, timeout: float | None = None) -> Message[K, V] | None:
        """The next message; None when the time is over, or after `wakeup`."""
        found = self.poll_batch(1, timeout)
        return found[0] if found else None

    def poll_batch(self, n: int = BATCH, timeout: float | None = None) -> Sequence[Message[K, V]]:
        """Up to `n` messages, as soon as there are some; none when the time is over, or after `wakeup`."""
        check_batch(n)
        check_seconds("timeout", timeout)
        engine = self._begin()
        engine.finish()
        found = engine.take(n, timeout)
        engine.hold(found)
        return found

    def batches(self, n: int = BATCH, wait: float = FILL_S) -> Iterator[Sequence[Message[K, V]]]:
        """Batches of up to `n` messages, until `wakeup`. A batch is done when the next one is asked for.

        One with fewer messages comes when no more arrived within `wait` seconds.
        """
        check_batch(n)
        check_seconds("wait", wait)
        yield from self._begin().batches(n, wait)

    def transactions(self, target: object, n: int = BATCH, wait: float = FILL_S) -> "Transactions[K, V]":
        """Batches of up to `n` messages, each in a transaction with its offsets: exactly once, until `wakeup`.

        `target` is a Producer with a transactional id, or a database: an SQLAlchemy Engine, sessionmaker or Session, a
        DB-API connection, or a function that returns one. Asking for the next batch commits the one before. Leaving
        the loop aborts it, and its messages are handed out again.
        """
        from moldau.client.consumer.transactions import open_transactions

        self._end_transactions()
        opened: Transactions[K, V] = open_transactions(self.engine, self._positions.queries, target, n, wait)
        self._transactions = weakref.ref(opened)
        return opened

    def _end_transactions(self) -> None:
        if self._transactions is not None and (opened := self._transactions()) is not None:
            opened.close()

    def run(self, handler: Callable[[Message[K, V]], object]) -> None:
        """Call `handler` for each message, until `wakeup`; a message is done when it returns.

        Up to `concurrency` handlers run at a time, in threads: one for each partition, or with `order="key"` for each
        key, and messages without a key have no order. With one at a time, it is the thread that calls `run`.

        If a handler raises, `retry` says what follows; without it, `run` ends with that exception. What was not
        processed is handed out again. Ctrl-C, `wakeup` and `close` end it after the messages in hand.
        """
        self._begin_run()
        self._runs.run(handler)

    def arrow(self, n: int = ROWS, wait: float = FILL_S, *, headers: bool = False) -> "Arrow":
        """Messages as pyarrow RecordBatches of up to `n` rows, until `wakeup`; `to_pandas()` makes a DataFrame of one.

        The columns are those of Spark's Kafka source: key, value, topic, partition, offset, timestamp, timestampType,
        and headers if wanted. Keys and values are bytes. Needs the extra `arrow`.
        """
        from moldau.client.consumer.arrow import ArrowReader

        check_batch(n)
        yield from ArrowReader(self._begin(), self._positions, headers=headers).batches(n, wait)

    def _begin(self) -> ConsumerEngine:
        if self._runs.active:
            raise InvalidUse("run is active: it gets all messages of this consumer")
        if self._runs.needed:
            raise InvalidUse("retry needs a handler that can be called again: consumer.run(handler)")
        self._check_delivery()
        self.engine.start()
        self._body = threading.get_ident()
        return self.engine

    def _begin_run(self) -> None:
        self._check_delivery()
        self.engine.finish()

    def _check_delivery(self) -> None:
        if self.engine.options.delivery == "exactly-once":
            raise InvalidUse(
                'delivery="exactly-once" needs a transaction for each batch: '
                "for batch in consumer.transactions(producer or database)"
            )

    def wakeup(self) -> None:
        """End the iteration or run that waits for messages, or else the next one; from any thread or signal handler."""
        if not self._runs.stop():
            self.engine.wakeup()
        for tail in list(self._tails):
            tail.wakeup()

    def tail(self, n: int = 0) -> "Consumer[K, V]":
        """A consumer without a group that reads the last `n` messages of each partition, and then those that come."""
        check_number("n", n, 0)
        tail: Consumer[K, V] = Consumer.__new__(type(self))
        tail._set_up(without_group(self.engine.options, n), RunOptions())
        self._tails.add(tail)
        return tail

    @property
    def passed_over(self) -> int:
        """How many messages `where` has passed over."""
        return self.engine.passed_over

    # ── offsets ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def commit(self, what: Committable | None = None, *, wait: bool = True, metadata: str = "") -> None:
        """Commit everything that is done, or messages, or offsets by partition.

        Without messages or offsets, the message or batch in hand of the loop that calls it is done. Messages that are
        committed are done; in a run, others may not be, and then what is done before them is committed.
        With `wait=False` errors are logged; retries keep the order of commits.
        """
        if what is None:
            if self._body == threading.get_ident():  # a rebalance listener, for one, has nothing in hand
                self.engine.finish()
            self.engine.commit(None, wait)
        elif isinstance(what, Mapping):
            self.engine.commit({partition_of(tp): _with(each, metadata) for tp, each in what.items()}, wait)
        else:
            messages = _messages(what)
            ends: dict[TopicPartition, Offset] = {}
            for message in messages:
                ends[message.topic_partition] = max(message.offset + 1, ends.get(message.topic_partition, 0))
            self.engine.done_many(messages)
            if self._runs.active:
                self.engine.commit(None, wait)
                return
            self.engine.commit({tp: OffsetAndMetadata(end, metadata) for tp, end in ends.items()}, wait)

    def committed(self, *partitions: TopicPartition) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Committed offsets of these partitions, or of all that are assigned; None where there is none."""
        return self._positions.committed(partitions)

    def position(self, *partitions: TopicPartition) -> dict[TopicPartition, Offset]:
        """The offset of the next message of each partition."""
        return self._positions.position(partitions)

    def lag(self, *partitions: TopicPartition) -> dict[TopicPartition, int]:
        """How far each partition's end is from the next message."""
        return self._positions.lag(partitions)

    # ── partitions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def assignment(self) -> set[TopicPartition]:
        return self.engine.assignment()

    def assign(self, partitions: Iterable[TopicPartition] | Mapping[TopicPartition, Offset | None]) -> None:
        """Read these partitions and no others: from given offsets, else from the committed ones, else from `start`."""
        if isinstance(partitions, Mapping):
            given = {partition_of(tp): None if offset is None else _offset(offset) for tp, offset in partitions.items()}
        else:
            given = dict.fromkeys(partitions_of(partitions))
        self.engine.assign(given)

    def seek(self, partition: TopicPartition | Mapping[TopicPartition, Offset], offset: Offset | None = None) -> None:
        """Go on at an offset of a partition, or at those of several."""
        if isinstance(partition, Mapping):
            self._positions.seek({partition_of(tp): _offset(each) for tp, each in partition.items()})
        elif offset is None:
            raise InvalidUse("seek needs an offset; see seek_to_beginning and seek_to_end")
        else:
            self._positions.seek({partition_of(partition): _offset(offset)})

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        self._positions.seek_to_beginning(partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        self._positions.seek_to_end(partitions)

    def seek_to_time(self, when: datetime.datetime | int, *partitions: TopicPartition) -> None:
        """Go on at the first message from this time on: a datetime, or milliseconds since the Unix epoch."""
        self._positions.seek_to_time(when, partitions)

    def pause(self, *partitions: TopicPartition) -> None:
        """Get no messages of these partitions, or of all, until they are resumed or assigned anew."""
        self.engine.pause(partitions_of(partitions) or self.assignment())

    def resume(self, *partitions: TopicPartition) -> None:
        self.engine.resume(partitions_of(partitions) or self.paused())

    def paused(self) -> set[TopicPartition]:
        return self.engine.paused()

    # ── life ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def close(self, timeout: float = CLOSE_S) -> None:
        """Commit what is done, and leave the group. The message in hand of a loop is not done.

        A run ends before that, after its messages in hand. Its handler may call this too: then it happens at the end.
        """
        for tail in list(self._tails):
            tail.close(timeout)
        self._end_transactions()
        if not self._runs.close_later(timeout):
            self._runs.end(timeout)
            self.engine.close(timeout)

    def __enter__(self) -> Self:
        if not self._runs.needed:  # which looks for its topics first
            self.engine.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        options = self.engine.options
        group = f", group={options.group!r}" if options.group is not None else ""
        return f"Consumer({', '.join(map(repr, options.topics))}{group})"


def without_group(options: ConsumerOptions, tail: int) -> ConsumerOptions:
    """The same topics, read from near their ends without a group."""
    name = f"moldau-no-group-{uuid.uuid4()}"
    left_out = {"group.instance.id", "group.protocol", "group.remote.assignor"}
    kept = {key: value for key, value in options.configuration.items() if key not in left_out}
    return dataclasses.replace(
        options,
        configuration={**kept, "group.id": name, "auto.offset.reset": "earliest"},
        group=None,
        delivery="at-least-once",
        auto_commit=False,
        listener=RebalanceListener(),
        tail=tail,
    )


def _with(offset: OffsetAndMetadata | Offset, metadata: str) -> OffsetAndMetadata:
    if isinstance(offset, OffsetAndMetadata):
        return offset
    return OffsetAndMetadata(_offset(offset), metadata)


def _offset(value: Offset) -> Offset:
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidUse(f"{value!r} is no offset: give a number; see also seek_to_beginning and seek_to_end")
    return value


def _messages(what: Any) -> list[Message[Any, Any]]:
    found: list[Any] = list(what) if isinstance(what, Iterable) else [what]
    if not all(isinstance(each, Message) for each in found):
        raise InvalidUse(f"{what!r} cannot be committed: give a message, messages, or offsets by partition")
    return found
