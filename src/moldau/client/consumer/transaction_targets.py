"""The port of transactions: what a batch is, and what `Transactions` asks of Kafka or of a database."""

from collections.abc import Iterator, Sequence
from typing import Any, Protocol, overload

from moldau.client.consumer.handover import AnyMessage
from moldau.client.errors import InvalidUse
from moldau.client.message import Message
from moldau.client.offset_store.store import OpenTransaction
from moldau.client.serializers.port import K, V


class Batch(Sequence[Message[K, V]]):
    """Messages of one transaction. With a database, `session` or `connection` is what writes the output."""

    def __init__(self, messages: Sequence[AnyMessage], transaction: OpenTransaction | None = None) -> None:
        self.messages = messages
        self._transaction = transaction

    @property
    def connection(self) -> Any:
        """The DB-API connection, or SQLAlchemy's, with the open transaction."""
        return self._of_database().connection

    @property
    def session(self) -> Any:
        """SQLAlchemy's Session, or AsyncSession, with the open transaction."""
        return self._of_database().session

    def _of_database(self) -> OpenTransaction:
        if self._transaction is None:
            raise InvalidUse("this batch is in a transaction of the producer, and has no database")
        return self._transaction

    @overload
    def __getitem__(self, index: int) -> Message[K, V]: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Message[K, V]]: ...
    def __getitem__(self, index: int | slice) -> Message[K, V] | Sequence[Message[K, V]]:
        return self.messages[index]

    def __iter__(self) -> Iterator[Message[K, V]]:
        return iter(self.messages)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return f"Batch({len(self)} messages)"


class Repeat(Exception):
    """A batch was rolled back, and its messages shall be handed out again. `bounded`: not for ever."""

    def __init__(self, reason: Exception, *, bounded: bool) -> None:
        super().__init__(str(reason))
        self.reason = reason
        self.bounded = bounded


class Target(Protocol):
    """Where transactions are made. Used by the thread that iterates, one batch at a time."""

    def prepare(self) -> None:
        """Before messages are asked for."""
        ...

    def begin(self, messages: Sequence[AnyMessage]) -> Batch[Any, Any] | None:
        """Begin the transaction of these messages, or of some; rewinds the others. None: there are none left."""
        ...

    def commit(self, batch: Batch[Any, Any]) -> None:
        """Commit with the offsets. If that is not possible, abort, and raise the reason, or `Repeat`."""
        ...

    def abort(self, batch: Batch[Any, Any]) -> None: ...

    def close(self) -> None: ...
