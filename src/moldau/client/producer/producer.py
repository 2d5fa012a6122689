"""Producer: records to topics, for threads. The same for coroutines is `aio`."""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from moldau.client.arguments import check_callable, check_seconds
from moldau.client.errors import BufferFull, Closed, DeliveryFailed, TimedOut
from moldau.client.producer.base import FOREVER, SERVE_EVERY, K, ProducerBase, V
from moldau.client.producer.delivery import Delivery, DeliveryBatch
from moldau.client.producer.records import Arguments, GivenHeaders, Timestamp, listed, utf8
from moldau.client.producer.transactions import Transaction

if TYPE_CHECKING:
    from typing import Self

logger = logging.getLogger("moldau.client.producer")


class Producer(ProducerBase[K, V]):
    """Send records: `with Producer() as producer: producer.send("orders", order, key="4711")`.

    Idempotent with acks=all by default. Threads may share a producer. A failed record is never silent: if nobody asks
    for its outcome, `flush` and `close` raise `DeliveryFailed`.

    An argument that is not given, or None, leaves the setting to `properties`, and that to the default:

    - `bootstrap`: addresses of brokers; MOLDAU_BOOTSTRAP, else localhost:9092.
    - `key`, `value`: a type, a Serde, or a function of (object, context); by default the type of each value decides.
    - `transactional_id`: for `transaction()`.
    - `partitioner`: a function of (topic, key, value, partitions), or the name of one of librdkafka's; as in Java.
    - `interceptors`: see `ProducerInterceptor`.
    - `linger`: seconds to wait for more records of a batch; 0.005.
    - `compression`: gzip, snappy, lz4, zstd or none.
    - `max_block`: seconds that `send` waits for room in the buffer, and transactions for brokers; 60.
    - `buffer_messages`, `buffer_bytes`: bounds of the buffer; 100,000 and 128 MiB.
    - `delivery_timeout`: seconds after which a record has failed; 120, or those of the transaction.
    - `properties`: by librdkafka's or Java's names, or the path of a properties file.
    - `on_stats`: called with librdkafka's statistics, every 10 s or statistics.interval.ms.
    """

    def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        props: Mapping[str, str] | None = None,
        partition: int | None = None,
        timestamp: Timestamp | None = None,
        on_delivery: Callable[[Delivery], object] | None = None,
    ) -> Delivery:
        """Put a record into the buffer; if it is full, wait for room up to `max_block`, then raise `BufferFull`.

        `props` are headers with text values. `timestamp` is in ms, or a datetime. `on_delivery` is called with the
        returned object when its outcome is known, in the producer's thread.
        """
        delivery = Delivery(topic, self._reports)
        if on_delivery is not None:
            check_callable("on_delivery", on_delivery)
            delivery._listeners = [on_delivery]
        raw: Any = value
        raw_key: Any = key
        if headers is None and props is None and partition is None and timestamp is None and self._takes_bytes:
            if self._takes_text:
                if type(raw) is str:
                    raw = utf8(raw, topic)
                if type(raw_key) is str:
                    raw_key = utf8(raw_key, topic)
            if (type(raw) is bytes or raw is None) and (raw_key is None or type(raw_key) is bytes):
                try:
                    self._produce(topic, raw, raw_key, -1, delivery.settle)
                except self._refusals as error:
                    self._insist((topic, raw, raw_key, -1, delivery.settle, None, 0, None), error)
                self._unserved += 1
                if self._unserved >= SERVE_EVERY:
                    self._unserved = 0
                    self._reports.serve()
                return delivery
        arguments = self._records.make(
            topic, raw, raw_key, headers, props, partition, timestamp, delivery.settle, self._max_block
        )
        delivery.topic = arguments[0]
        try:
            self._produce(*arguments)
        except self._refusals as error:
            self._insist(arguments, error)
        self._unserved += 1
        if self._unserved >= SERVE_EVERY:
            self._unserved = 0
            self._reports.serve()
        return delivery

    def send_many(
        self, topic: str, values: Iterable[V | None], *, keys: Iterable[K | None] | None = None
    ) -> DeliveryBatch:
        """Send many records with one outcome for all of them: their number, or `DeliveryFailed`.

        Nothing is sent if one of them cannot be serialized. If the buffer stays full, `BufferFull.sent` says how many
        were sent.
        """
        all_values, all_keys = listed(values, keys)
        batch = DeliveryBatch(topic, len(all_values), self._reports)
        settle, sent = batch.settle, 0
        # librdkafka's produce_batch is not faster than this loop, and knows neither headers nor timestamps.
        try:
            if self._records.are_simple(all_values, all_keys):
                for value, key in zip(all_values, all_keys, strict=True):
                    try:
                        self._produce(topic, value, key, -1, settle)
                        sent += 1
                    except self._refusals as error:
                        sent += self._insist_for((topic, value, key, -1, settle, None, 0, None), error, batch)
                    if not sent % SERVE_EVERY:
                        self._reports.serve()
            else:
                for arguments in self._records.make_many(topic, all_values, all_keys, settle, self._max_block):
                    try:
                        self._produce(*arguments)
                        sent += 1
                    except self._refusals as error:
                        sent += self._insist_for(arguments, error, batch)
                    if not sent % SERVE_EVERY:
                        self._reports.serve()
        except BufferFull as full:
            full.sent = sent
            raise
        finally:
            batch.conclude(sent)
        return batch

    def _insist(self, arguments: Arguments, error: Exception) -> None:
        """Wait until there is room for the record that librdkafka did not take; raise if it is not that."""
        failed = self._try_again(arguments, error)
        if failed is not None:
            raise self._refusal(failed, arguments) from failed

    def _insist_for(self, arguments: Arguments, error: Exception, batch: DeliveryBatch) -> bool:
        """The same for one record of many: whether it is in the buffer."""
        failed = self._try_again(arguments, error)
        if failed is not None:
            batch.refuse(self._refused_one(failed, arguments))
        return failed is None

    def _try_again(self, arguments: Arguments, error: Exception) -> Exception | None:
        deadline = time.monotonic() + self._max_block
        while isinstance(error, BufferError) and (remains := deadline - time.monotonic()) > 0:
            self._reports.wait_for_room(remains)
            try:
                self._produce(*arguments)
            except self._refusals as again:
                error = again
            else:
                return None
        return error

    def partitions(self, topic: str) -> int:
        """The number of partitions of a topic, as a broker knows it now."""
        return self._counts.ask(topic, self._max_block)

    def transaction(self) -> Transaction:
        """`with producer.transaction():` commits what is sent in its body, or aborts it if the body raises."""
        return Transaction(self._transactional())

    def flush(self, timeout: float | None = None) -> None:
        """Wait until every record has its outcome and callbacks were called.

        Raises `DeliveryFailed` for failures that nobody looked at, and `TimedOut`.
        """
        check_seconds("timeout", timeout)
        if self._closed:
            raise Closed("the producer is closed")
        left = self._reports.flush(time.monotonic() + (FOREVER if timeout is None else timeout))
        self._raise_unseen()
        if left:
            raise TimedOut(f"{left} records have no outcome after {timeout} s{self._connection.reason()}")

    def close(self, timeout: float | None = None) -> None:
        """Wait for the outcome of every record, then end; what has none after `timeout` is dropped.

        Raises `DeliveryFailed` for failures that nobody looked at. An open transaction is aborted.
        """
        check_seconds("timeout", timeout)
        if self._closed:
            return
        self._disable("the producer is closed")
        try:
            if self._calls is None or not self._calls.open:
                self._reports.flush(time.monotonic() + (FOREVER if timeout is None else timeout))
        finally:
            self._end()
        self._raise_unseen()

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except DeliveryFailed as failed:
            if error is None:
                raise
            logger.error("Closing after %s: %s", type(error).__name__, failed)
