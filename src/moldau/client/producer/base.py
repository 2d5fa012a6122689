"""What Producer and AsyncProducer share: their parts, the refusals of librdkafka, the end."""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, NoReturn, TypeVar

from moldau.client.arguments import check_callable, check_interceptors
from moldau.client.errors import BufferFull, ClientError, Closed, InvalidUse, KafkaFailure, client_error
from moldau.client.interceptors import ProducerInterceptor
from moldau.client.producer.failures import Connection
from moldau.client.producer.options import OnStats, configuration, read_max_block
from moldau.client.producer.partitioners import PartitionCounts, Partitioner
from moldau.client.producer.records import Arguments, Intercepted, RecordMaker
from moldau.client.producer.reports import ReportThread, forget_all
from moldau.client.producer.transactions import TransactionCalls
from moldau.client.serializers.port import SerializerKind
from moldau.client.settings import Properties, build, read_settings

if TYPE_CHECKING:
    import typing_extensions
    from confluent_kafka import Producer as KafkaProducer

    # Python 3.11 knows no defaults of type variables (PEP 696), type checkers do.
    K = typing_extensions.TypeVar("K", default=Any)
    V = typing_extensions.TypeVar("V", default=Any)
else:
    K = TypeVar("K")
    V = TypeVar("V")

logger = logging.getLogger("moldau.client.producer")

FOREVER = float("inf")
SERVE_EVERY = 64  # records, after which a sender serves delivery reports
PURGE_S = 5.0  # for the reports of records that were dropped
ABORT_S = 3.0  # for the transaction that is open at the end


class ProducerBase(Generic[K, V]):
    """The parts of a producer; `Producer` says what the arguments mean."""

    def __init__(
        self,
        bootstrap: str | None = None,
        *,
        key: SerializerKind[K] | None = None,
        value: SerializerKind[V] | None = None,
        transactional_id: str | None = None,
        partitioner: Partitioner | str | None = None,
        interceptors: Sequence[ProducerInterceptor] = (),
        linger: float | None = None,
        compression: str | None = None,
        max_block: float | None = None,
        buffer_messages: int | None = None,
        buffer_bytes: int | None = None,
        delivery_timeout: float | None = None,
        client_id: str | None = None,
        properties: Properties = None,
        on_stats: OnStats | None = None,
    ) -> None:
        check_interceptors(interceptors, ProducerInterceptor)
        if not isinstance(partitioner, str):
            check_callable("partitioner", partitioner)
        settings = read_settings(bootstrap, properties)
        found = configuration(
            settings,
            transactional_id=transactional_id,
            partitioner=partitioner if isinstance(partitioner, str) else None,
            linger=linger,
            compression=compression,
            buffer_messages=buffer_messages,
            buffer_bytes=buffer_bytes,
            delivery_timeout=delivery_timeout,
            client_id=client_id,
            on_stats=on_stats,
        )
        self._max_block = read_max_block(max_block, settings.properties)
        self._connection = Connection(settings.bootstrap)
        self._kafka = _build(found, self._connection)
        self._reports = ReportThread(self._kafka, self._connection)
        self._counts = PartitionCounts(self._kafka, self._connection)
        function = None if isinstance(partitioner, str) else partitioner
        self._records = RecordMaker(key, value, interceptors, function, self._reports, self._counts)
        self._takes_bytes = self._records.takes_bytes
        self._takes_text = self._records.takes_text
        self._produce: Callable[..., None] = self._kafka.produce
        self._refusals = _refusals()
        name = found.get("transactional.id")
        self._calls = TransactionCalls(self._kafka, self._reports, str(name), self._max_block) if name else None
        self._unserved = 0  # records since reports were served
        self._closed = False
        _open.add(self)
        weakref.finalize(self, self._reports.abandon).atexit = False

    def _refusal(self, error: Exception, arguments: Arguments) -> ClientError:
        """Why librdkafka's produce does not take a record."""
        refusal = self._read_refusal(error, arguments[0])
        settle = arguments[4]
        if isinstance(settle, Intercepted):
            settle.refused(refusal)
        return refusal

    def _read_refusal(self, error: Exception, topic: str) -> ClientError:
        from confluent_kafka import KafkaException

        if isinstance(error, BufferError):
            return BufferFull(f"no room in the buffer within {self._max_block:g} s{self._connection.reason()}")
        if isinstance(error, RuntimeError):
            return Closed("the producer is closed")
        if not isinstance(error, KafkaException):
            return InvalidUse(f"a record for {topic} cannot be sent: {error}")
        failure = client_error(error, topic)
        if failure.name == "FATAL":
            self._reports.serve()  # it has the error itself
            return self._connection.fatal or KafkaFailure("FATAL", failure.problem, fatal=True)
        if failure.name == "STATE" and self._calls is not None:
            if not self._calls.open:
                return InvalidUse("no transaction is open: send inside of `with producer.transaction():`")
            problem = "a record of the transaction has failed, so it has to be aborted"
            return KafkaFailure("STATE", problem, retriable=True, abortable=True)
        return self._connection.explain(failure)

    def _refused_one(self, error: Exception, arguments: Arguments) -> ClientError:
        """Why librdkafka takes one record of many not; raises if it takes none of them."""
        refusal = self._refusal(error, arguments)
        if isinstance(refusal, KafkaFailure) and not refusal.fatal and not refusal.abortable:
            return refusal
        raise refusal from error

    def _transactional(self) -> TransactionCalls:
        if self._closed:
            raise Closed("the producer is closed")
        if self._calls is None:
            raise InvalidUse("the producer has no transactional_id, which transactions need")
        return self._calls

    # -- the end

    def _raise_unseen(self) -> None:
        """Raise the failures that nobody looked at."""
        failed = self._reports.listeners.take_unseen()
        if failed is not None:
            raise failed

    def _disable(self, reason: str) -> None:
        def refuse(*_: object) -> None:
            raise Closed(reason)

        self._closed = True
        self._produce = refuse
        _open.discard(self)

    def _end(self) -> None:
        """Abort what is open, drop what is left, end librdkafka's threads. Call it once, after `_disable`."""
        if self._calls is not None:
            self._calls.give_up(ABORT_S)
        if len(self._kafka):
            self._kafka.purge()
            self._reports.flush(time.monotonic() + PURGE_S)
        self._reports.ended = Closed("the producer was closed before the outcome was known")
        self._reports.stop()
        # Its close() would wait for brokers. Its destructor does not, and no other thread can be inside of it then.
        ended: Any = _Ended()
        for part in (self, self._reports, self._counts, self._calls):
            if part is not None:
                part._kafka = ended
        self._connection.drop_queued = None

    def _orphan(self) -> None:
        """This is a child process: the threads are in its parent."""
        self._disable("the producer belongs to the parent process: make a new one after a fork")
        self._reports.ended = Closed("the producer belongs to the parent process")
        self._reports.listeners.mutex = threading.Lock()  # another thread may have held it


def _build(found: dict[str, object], connection: Connection) -> "KafkaProducer":
    from confluent_kafka import Producer as KafkaProducer

    kafka = build(KafkaProducer, {**found, "error_cb": connection.on_error})
    if "transactional.id" not in found:
        connection.drop_queued = lambda: kafka.purge(in_queue=True, in_flight=False)
    return kafka


class _Ended:
    """In place of librdkafka's producer when that is no more."""

    def __len__(self) -> int:
        return 0

    def __getattr__(self, name: str) -> NoReturn:
        raise Closed("the producer is closed")


def _refusals() -> tuple[type[Exception], ...]:
    from confluent_kafka import KafkaException

    return (KafkaException, BufferError, RuntimeError, TypeError, ValueError, OverflowError)


_open: "weakref.WeakSet[ProducerBase[Any, Any]]" = weakref.WeakSet()


def _orphan_all() -> None:
    forget_all()
    for producer in list(_open):
        producer._orphan()


os.register_at_fork(after_in_child=_orphan_all)
