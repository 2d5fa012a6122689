"""Transactions of a producer: librdkafka's calls in slices, and the context manager that ends a transaction.

Consuming and producing in one transaction is `consumer/transactions`.
"""

import logging
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING

from moldau.base.ids import Offset, TopicPartition
from moldau.client.errors import ClientError, InvalidUse, KafkaFailure, TimedOut, client_error
from moldau.client.producer.reports import ReportThread

if TYPE_CHECKING:
    from confluent_kafka import Producer as KafkaProducer

logger = logging.getLogger("moldau.client.producer")

# Of calls that wait: Ctrl-C ends them between two slices. None is shorter, also when less time remains: librdkafka 2.16
# forgets that it commits if its thread does not take up the call in time, and ends the process when the answer comes.
SLICE_S = 1.0
# This one cannot be continued by another call: when its time is over, the transaction has to be aborted.
OFFSETS_S = 10.0
RETRY_S = 0.1
ARRIVAL_S = 2.0
FLUSH_S = 0.02


class TransactionCalls:
    """librdkafka's transactional calls, each repeated until it succeeds or `timeout` is over (up to a slice later)."""

    def __init__(self, kafka: "KafkaProducer", reports: ReportThread, transactional_id: str, timeout: float) -> None:
        self._kafka = kafka
        self._reports = reports
        self._id = transactional_id
        self._timeout = timeout
        self._ready = False
        self.open = False

    def initialize(self) -> None:
        """Fence producers of the same transactional id, and end their transactions; once."""
        if not self._ready:
            self._repeat(self._kafka.init_transactions, "be initialized")
            self._ready = True

    def begin(self) -> None:
        """Begin; the first time, `initialize`."""
        if self.open:
            raise InvalidUse(f"transaction {self._id!r} is open already: end it before another one begins")
        self.initialize()
        self._repeat(lambda _: self._kafka.begin_transaction(), "begin")
        self.open = True

    def send_offsets(self, offsets: Mapping[TopicPartition, Offset], group_metadata: object) -> None:
        """Commit a group's offsets with the transaction: the next ones to consume."""
        from confluent_kafka import TopicPartition as KafkaPartition

        listed = [KafkaPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]
        self._repeat(
            lambda timeout: self._kafka.send_offsets_to_transaction(listed, group_metadata, timeout),
            "take offsets",
            min(OFFSETS_S, self._timeout),
        )

    def commit(self) -> None:
        """Wait for all records and commit. After `TimedOut` its outcome is not known: call it again."""
        self._repeat(self._serving(self._kafka.commit_transaction), "be committed")
        self.open = False

    def abort(self) -> None:
        """Drop the records that wait, and abort."""
        try:
            self._let_one_arrive()
            self._repeat(self._serving(self._kafka.abort_transaction), "be aborted")
        finally:
            # They failed together with the transaction, and the caller knows.
            self._reports.listeners.take_unseen()
        self.open = False

    def _let_one_arrive(self) -> None:
        """Wait for the report of a record, for a moment: then the coordinator knows the transaction.

        While it still completes the one before, it refuses to know it. Asked to abort it then, Apache Kafka answers
        INVALID_TXN_STATE, which ends librdkafka's producer for good.
        """
        waiting, deadline = len(self._kafka), time.monotonic() + min(self._timeout, ARRIVAL_S)
        left = waiting
        while left >= waiting > 0 and time.monotonic() < deadline:
            left = self._reports.flush(time.monotonic() + FLUSH_S)

    def give_up(self, timeout: float) -> None:
        """The producer is being closed: abort what is open, if a broker can be reached."""
        self._timeout = timeout
        if self.open:
            try:
                self.abort()
            except ClientError as failure:
                logger.warning("Transaction %r was left open: %s", self._id, failure)
            self.open = False

    def _serving(self, call: Callable[[float], None]) -> Callable[[float], None]:
        """For calls that flush: they serve delivery reports."""

        def serve(timeout: float) -> None:
            with self._reports.polling():
                call(timeout)

        return serve

    def _repeat(self, call: Callable[[float], None], aim: str, slice_s: float = SLICE_S) -> None:
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + self._timeout
        while True:
            try:
                call(slice_s)
            except KafkaException as error:
                failure = client_error(error, f"transaction {self._id!r}")
                if failure.fatal:
                    self.open = False
                    self._reports.connection.on_fatal(error)
                    raise self._reports.connection.fatal or failure from error
                if failure.abortable or not failure.retriable:
                    raise failure from error
                if time.monotonic() >= deadline or self._reports.connection.refused():
                    raise self._late(aim) from error
                if failure.name != "TIMED_OUT":
                    time.sleep(RETRY_S)
            else:
                return

    def _late(self, aim: str) -> ClientError:
        connection = self._reports.connection
        if connection.refusal is not None:
            return connection.refusal
        return TimedOut(f"transaction {self._id!r} could not {aim} within {self._timeout:g} s{connection.reason()}")


class Transaction:
    """`with producer.transaction():` commits at the end, and aborts if the body raises.

    If a record of it failed, the commit raises that error, the transaction is aborted, and can be tried again. A fatal
    error, `Fenced` above all, ends the producer.
    """

    def __init__(self, calls: TransactionCalls) -> None:
        self._calls = calls

    def initialize(self) -> None:
        """End what an earlier producer of this transactional id has left open; the first `begin` does it too."""
        self._calls.initialize()

    def begin(self) -> None:
        self._calls.begin()

    def send_offsets(self, offsets: Mapping[TopicPartition, Offset], group_metadata: object) -> None:
        """Commit these offsets of a consumer group with the transaction."""
        self._calls.send_offsets(offsets, group_metadata)

    def commit(self) -> None:
        """Commit, or abort and raise what prevents it."""
        try:
            self._calls.commit()
        except KafkaFailure as failure:
            if failure.abortable:
                self._calls.abort()
            raise

    def abort(self) -> None:
        self._calls.abort()

    def __enter__(self) -> "Transaction":
        self.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._calls.open:
            return
        if error is None:
            self.commit()
            return
        try:
            self.abort()
        except ClientError as failure:
            logger.warning("The transaction could not be aborted after its body raised: %s", failure)
