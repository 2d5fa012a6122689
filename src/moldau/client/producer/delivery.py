"""The outcome of a record, or of many: pending, delivered, or failed. Serves no delivery reports; `reports` does.

There is one object for each record, so it is small: what waiting and callbacks need is made when someone asks for it.
"""

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

from moldau.base.ids import Offset
from moldau.client.errors import ClientError, DeliveryFailed, TimedOut

if TYPE_CHECKING:
    from typing import Self

    from confluent_kafka import KafkaError, Message

    from moldau.client.producer.failures import Connection
    from moldau.client.producer.listeners import Listeners

T = TypeVar("T")

MOST_ERRORS = 10  # that a DeliveryFailed carries


class Delivered(NamedTuple):
    """Where a record was written. `timestamp` is in ms; with acks=0 the offset is not known, and negative."""

    topic: str
    partition: int
    offset: Offset
    timestamp: int


Listener: TypeAlias = Callable[[Any], object]


class Reports(Protocol):
    """What an outcome needs of the thread that serves delivery reports."""

    @property
    def connection(self) -> "Connection": ...

    @property
    def listeners(self) -> "Listeners": ...

    def failure(self, error: "KafkaError", about: str) -> ClientError: ...

    def wait(self, outcome: "Outcome[Any]", timeout: float | None) -> bool: ...

    async def wait_on_loop(self, outcome: "Outcome[Any]", seconds: float | None) -> bool: ...


class Outcome(Generic[T]):
    """Pending until `_known` is set, by one thread at a time."""

    __slots__ = ("_known", "_listeners", "_reports")

    def __init__(self, reports: Reports) -> None:
        self._reports = reports
        self._known: Any = None  # an error, or what `_value` makes the result of
        self._listeners: object = None  # nobody; see `listeners`

    def done(self) -> bool:
        """Whether the outcome is known."""
        return self._known is not None

    def add_done_callback(self, callback: "Callable[[Self], object]") -> None:
        """Call it with this object when the outcome is known: in the producer's thread, or on the event loop."""
        self._reports.listeners.add(self, callback)

    def _value(self) -> T:
        raise AssertionError("outcomes are of records or of many")

    def _get(self) -> T:
        if isinstance(self._known, ClientError):
            self._reports.listeners.look_at(self)
            raise self._known
        return self._value()

    def _error(self) -> ClientError | None:
        if isinstance(self._known, ClientError):
            self._reports.listeners.look_at(self)
            return self._known
        return None


class RecordOutcome(Outcome[Delivered]):
    """Of one record."""

    __slots__ = ("topic",)

    def __init__(self, topic: str, reports: Reports) -> None:
        # As Outcome.__init__, without another call: this runs for every record.
        self.topic = topic
        self._reports = reports
        self._known: Any = None
        self._listeners: object = None

    def settle(self, error: "KafkaError | None", message: "Message") -> None:
        """librdkafka's delivery report."""
        if error is None:
            self._known = (message.partition(), message.offset(), message.timestamp()[1])
            if self._reports.connection.unreachable:
                self._reports.connection.recovered()
            if self._listeners is not None:
                self._reports.listeners.settled(self)
        else:
            self._reports.listeners.fail(self, self._reports.failure(error, self.topic), 1)

    def _value(self) -> Delivered:
        partition, offset, timestamp = self._known
        return Delivered(self.topic, partition, offset, timestamp)

    def __repr__(self) -> str:
        known = self._known
        state = "pending" if known is None else known if isinstance(known, ClientError) else f"{self._value()}"
        return f"{type(self).__name__}({self.topic}: {state})"


class BatchOutcome(Outcome[int]):
    """Of all records of a `send_many` together: their number, or `DeliveryFailed`."""

    __slots__ = ("_errors", "_expected", "_failed", "_finished", "_refusals", "_refused", "_reported", "topic")

    def __init__(self, topic: str, count: int, reports: Reports) -> None:
        super().__init__(reports)
        self.topic = topic
        self._expected = count  # up to here the sender's, below for delivery reports
        self._refused = 0
        self._refusals: list[ClientError] = []
        self._reported = 0
        self._failed = 0
        self._errors: list[ClientError] = []
        self._finished = False

    def settle(self, error: "KafkaError | None", message: "Message") -> None:
        """librdkafka's delivery report of one record."""
        if error is not None:
            self._failed += 1
            if len(self._errors) < MOST_ERRORS:
                self._errors.append(self._reports.failure(error, self.topic))
        self._reported += 1
        if self._reported == self._expected:
            self._finish()

    def refuse(self, error: ClientError) -> None:
        """librdkafka does not take a record."""
        self._refused += 1
        if len(self._refusals) < MOST_ERRORS:
            self._refusals.append(error)

    def conclude(self, sent: int) -> None:
        """No more records than these are in the buffer."""
        self._expected = sent
        if self._reported == sent:
            self._finish()

    def _finish(self) -> None:
        with self._reports.listeners.mutex:
            if self._finished:
                return
            self._finished = True
        count, errors = self._failed + self._refused, [*self._refusals, *self._errors][:MOST_ERRORS]
        if errors:
            self._reports.listeners.fail(self, DeliveryFailed(count, errors), count)
            return
        self._known = self._reported
        if self._reports.connection.unreachable:
            self._reports.connection.recovered()
        if self._listeners is not None:
            self._reports.listeners.settled(self)

    def _value(self) -> int:
        count: int = self._known
        return count

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.topic}: {self._reported} of {self._expected} records reported)"


class Waiting(Outcome[T]):
    """The methods for threads."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> T:
        """Wait; raise what failed, or `TimedOut`."""
        self._await(timeout)
        return self._get()

    def exception(self, timeout: float | None = None) -> ClientError | None:
        """Wait; return what failed, or None."""
        self._await(timeout)
        return self._error()

    def _await(self, timeout: float | None) -> None:
        if self._known is None and not self._reports.wait(self, timeout):
            raise TimedOut(f"{self!r}: no outcome within {timeout} s")


class Awaiting(Outcome[T]):
    """The same methods for coroutines; `await delivery` is `await delivery.result()`."""

    __slots__ = ()

    async def result(self, timeout: float | None = None) -> T:  # noqa: ASYNC109 - as of threads
        """Wait; raise what failed, or `TimedOut`."""
        await self._await(timeout)
        return self._get()

    async def exception(self, timeout: float | None = None) -> ClientError | None:  # noqa: ASYNC109
        """Wait; return what failed, or None."""
        await self._await(timeout)
        return self._error()

    def __await__(self) -> Generator[Any, None, T]:
        if self._known is None:
            yield from self._await(None).__await__()
        return self._get()

    async def _await(self, seconds: float | None) -> None:
        if self._known is None and not await self._reports.wait_on_loop(self, seconds):
            raise TimedOut(f"{self!r}: no outcome within {seconds} s")


class Delivery(RecordOutcome, Waiting[Delivered]):
    """What `Producer.send` returns."""

    __slots__ = ()


class DeliveryBatch(BatchOutcome, Waiting[int]):
    """What `Producer.send_many` returns."""

    __slots__ = ()


class AsyncDelivery(RecordOutcome, Awaiting[Delivered]):
    """What `await AsyncProducer.send` returns: `await delivery` gives `Delivered`."""

    __slots__ = ()


class AsyncDeliveryBatch(BatchOutcome, Awaiting[int]):
    """What `await AsyncProducer.send_many` returns."""

    __slots__ = ()
