"""AsyncProducer: Producer for coroutines, with the same names. Nothing here blocks the event loop."""

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from moldau.base.ids import Offset, TopicPartition
from moldau.client.arguments import check_callable
from moldau.client.errors import BufferFull, ClientError, Closed, DeliveryFailed, KafkaFailure, TimedOut
from moldau.client.producer.base import FOREVER, SERVE_EVERY, K, ProducerBase, V
from moldau.client.producer.delivery import AsyncDelivery, AsyncDeliveryBatch
from moldau.client.producer.records import Arguments, GivenHeaders, Timestamp, listed
from moldau.client.producer.transactions import Transaction, TransactionCalls

if TYPE_CHECKING:
    from typing import Self

P = ParamSpec("P")
T = TypeVar("T")

logger = logging.getLogger("moldau.client.producer")

FLUSH_SLICE_S = 0.2  # in a thread; so a cancelled flush ends soon


class AsyncProducer(ProducerBase[K, V]):
    """Send records: `async with AsyncProducer() as producer: delivery = await producer.send("orders", order)`.

    `await producer.send(…)` waits for room in the buffer, `await delivery` for the outcome. Arguments are those of
    `Producer`. It belongs to the event loop that first uses it; callbacks run there.
    """

    _loop: asyncio.AbstractEventLoop | None = None
    _blocked = 0  # coroutines that wait for room

    def _bind(self) -> None:
        if self._loop is None:
            self._loop = self._reports.loop = asyncio.get_running_loop()
            self._turn = asyncio.Lock()  # coroutines get room in the order in which they came
            self._room = asyncio.Event()
            self._reports.on_room = self._tell_room

    def _tell_room(self) -> None:
        if self._blocked and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop was closed
                self._loop.call_soon_threadsafe(self._room.set)

    async def send(
        self,
        topic: str,
        value: V | None = None,
        *,
        key: K | None = None,
        headers: GivenHeaders | None = None,
        props: Mapping[str, str] | None = None,
        partition: int | None = None,
        timestamp: Timestamp | None = None,
        on_delivery: Callable[[AsyncDelivery], object] | None = None,
    ) -> AsyncDelivery:
        """Put a record into the buffer; if it is full, wait for room up to `max_block`, then raise `BufferFull`.

        `props` are headers with text values. `timestamp` is in ms, or a datetime. `on_delivery` is called with the
        returned object when its outcome is known.
        """
        self._bind()
        delivery = AsyncDelivery(topic, self._reports)
        if on_delivery is not None:
            check_callable("on_delivery", on_delivery)
            delivery._listeners = [on_delivery]
        if self._records.partitioner is not None and partition is None and self._counts.fresh(topic) is None:
            await in_thread(self._counts.get, topic, self._max_block)
        arguments = self._records.make(
            topic, value, key, headers, props, partition, timestamp, delivery.settle, self._max_block
        )
        delivery.topic = arguments[0]
        failed = await self._try(arguments)
        if failed is not None:
            raise self._refusal(failed, arguments) from failed
        await self._serve_now_and_then()
        return delivery

    async def send_many(
        self, topic: str, values: Iterable[V | None], *, keys: Iterable[K | None] | None = None
    ) -> AsyncDeliveryBatch:
        """Send many records with one outcome for all of them: their number, or `DeliveryFailed`.

        Nothing is sent if one of them cannot be serialized. If the buffer stays full, `BufferFull.sent` says how many
        were sent.
        """
        self._bind()
        all_values, all_keys = listed(values, keys)
        if self._records.partitioner is not None and self._counts.fresh(topic) is None:
            await in_thread(self._counts.get, topic, self._max_block)
        batch = AsyncDeliveryBatch(topic, len(all_values), self._reports)
        sent = 0
        try:
            for arguments in self._records.make_many(topic, all_values, all_keys, batch.settle, self._max_block):
                failed = await self._try(arguments)
                if failed is None:
                    sent += 1
                else:
                    batch.refuse(self._refused_one(failed, arguments))
                await self._serve_now_and_then()
        except BufferFull as full:
            full.sent = sent
            raise
        finally:
            batch.conclude(sent)
        return batch

    async def _try(self, arguments: Arguments) -> Exception | None:
        """Give the record to librdkafka, when there is room and it is its turn; returns why that failed."""
        if not self._blocked:
            try:
                self._produce(*arguments)
            except BufferError:
                self._reports.stop_serving()
            except self._refusals as error:
                return error
            else:
                return None
        self._blocked += 1
        failed: Exception = BufferError()
        try:
            async with asyncio.timeout(self._max_block), self._turn:
                while True:
                    self._room.clear()
                    try:
                        self._produce(*arguments)
                    except BufferError as error:
                        failed = error
                        await self._room.wait()
                    except self._refusals as error:
                        return error
                    else:
                        return None
        except TimeoutError:
            return failed
        finally:
            self._blocked -= 1

    async def _serve_now_and_then(self) -> None:
        self._unserved += 1
        if self._unserved >= SERVE_EVERY:
            self._unserved = 0
            self._reports.serve()
            await asyncio.sleep(0)  # others may run too while this one sends

    async def partitions(self, topic: str) -> int:
        """The number of partitions of a topic, as a broker knows it now."""
        self._bind()
        return await in_thread(self._counts.ask, topic, self._max_block)

    def transaction(self) -> "AsyncTransaction":
        """`async with producer.transaction():` commits what is sent in its body, or aborts it if the body raises."""
        self._bind()
        return AsyncTransaction(self._transactional())

    async def flush(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as Producer has it
        """Wait until every record has its outcome and callbacks were called.

        Raises `DeliveryFailed` for failures that nobody looked at, and `TimedOut`.
        """
        self._bind()
        if self._closed:
            raise Closed("the producer is closed")
        left = await self._flush(timeout)
        self._raise_unseen()
        if left:
            raise TimedOut(f"{left} records have no outcome after {timeout} s{self._connection.reason()}")

    async def _flush(self, seconds: float | None) -> int:
        deadline = time.monotonic() + (FOREVER if seconds is None else seconds)
        while True:
            until = min(deadline, time.monotonic() + FLUSH_SLICE_S)
            left = await in_thread(self._reports.flush, until)
            if not left or time.monotonic() >= deadline:
                return left

    async def close(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as Producer has it
        """Wait for the outcome of every record, then end; what has none after `timeout` is dropped.

        Raises `DeliveryFailed` for failures that nobody looked at. An open transaction is aborted.
        """
        if self._closed:
            return
        self._bind()
        self._disable("the producer is closed")
        try:
            if self._calls is None or not self._calls.open:
                await self._flush(timeout)
        finally:
            await in_thread(self._end)
        self._raise_unseen()

    async def __aenter__(self) -> "Self":
        self._bind()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except DeliveryFailed as failed:
            if error is None:
                raise
            logger.error("Closing after %s: %s", type(error).__name__, failed)


class AsyncTransaction:
    """`Transaction` for coroutines."""

    def __init__(self, calls: TransactionCalls) -> None:
        self._calls = calls

    async def initialize(self) -> None:
        """End what an earlier producer of this transactional id has left open; the first `begin` does it too."""
        await in_thread(self._calls.initialize)

    async def begin(self) -> None:
        await in_thread(self._calls.begin)

    async def send_offsets(self, offsets: Mapping[TopicPartition, Offset], group_metadata: object) -> None:
        """Commit these offsets of a consumer group with the transaction."""
        await in_thread(self._calls.send_offsets, offsets, group_metadata)

    async def commit(self) -> None:
        """Commit, or abort and raise what prevents it."""
        try:
            await in_thread(self._calls.commit)
        except KafkaFailure as failure:
            if failure.abortable:
                await self.abort()
            raise

    async def abort(self) -> None:
        await in_thread(self._calls.abort)

    async def __aenter__(self) -> "AsyncTransaction":
        await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if not self._calls.open:
            return
        if error is None:
            await self.commit()
            return
        try:
            await self.abort()
        except ClientError as failure:
            logger.warning("The transaction could not be aborted after its body raised: %s", failure)


async def in_thread(function: Callable[P, T], *arguments: P.args, **named: P.kwargs) -> T:
    """Call it in a thread, to its end even if the caller is cancelled: the state of librdkafka must be known."""
    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments, **named))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await asyncio.wait([work])
        if not work.cancelled() and (failure := work.exception()) is not None:
            logger.warning("Cancelled, and failed: %s: %s", getattr(function, "__qualname__", function), failure)
        raise


def for_threads(transaction: AsyncTransaction) -> Transaction:
    """The same transaction, for a thread."""
    return Transaction(transaction._calls)
