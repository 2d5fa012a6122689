"""The ports of interceptors: code of the user's that sees every record that is sent, consumed or committed.

An interceptor never breaks a client: if it raises, that is logged and the record goes on.
"""

import dataclasses
import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.base.ids import Offset, TopicPartition
from moldau.client.errors import ClientError
from moldau.client.serializers.port import Headers

if TYPE_CHECKING:
    from moldau.client.message import Message
    from moldau.client.producer.delivery import Delivered

logger = logging.getLogger("moldau.client")

T = TypeVar("T")

REPEAT_S = 10.0  # a failing interceptor is logged this often


@dataclasses.dataclass(slots=True)
class OutgoingRecord:
    """A record on its way to the producer's buffer: key and value are not serialized yet."""

    topic: str
    value: Any
    key: Any
    headers: Headers
    partition: int | None  # None: the partitioner chooses
    timestamp: int | None  # in ms; None: now


class ProducerInterceptor:
    """What a producer tells its interceptors; override what is needed."""

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        """Look at the record, change it, or replace it; called in the thread that sends."""
        return record

    def on_delivery(self, record: OutgoingRecord, outcome: "Delivered | ClientError") -> None:
        """The record was written, or it failed; called in the producer's thread, or on the event loop."""


class ConsumerInterceptor:
    """What a consumer tells its interceptors; override what is needed."""

    def on_consume(self, messages: "Sequence[Message[Any, Any]]") -> "Sequence[Message[Any, Any]]":
        """Look at messages before the body of the loop gets them; those that are left out count as done."""
        return messages

    def on_commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """These offsets were committed."""


class Interceptors:
    """Calls the same method of several interceptors, and logs what fails."""

    def __init__(self) -> None:
        self._silent_until: dict[Callable[..., object], float] = {}

    def pass_through(self, methods: Iterable[Callable[[T], T]], thing: T) -> T:
        """Each method gets what the one before returned."""
        for method in methods:
            try:
                thing = method(thing)
            except Exception:  # noqa: BLE001 - code of the user's; logged
                self._log(method)
        return thing

    def tell(self, methods: Iterable[Callable[..., object]], *arguments: object) -> None:
        for method in methods:
            try:
                method(*arguments)
            except Exception:  # noqa: BLE001 - code of the user's; logged
                self._log(method)

    def _log(self, method: Callable[..., object]) -> None:
        now = time.monotonic()
        if now >= self._silent_until.get(method, now):
            self._silent_until[method] = now + REPEAT_S
            name = getattr(method, "__qualname__", repr(method))
            logger.exception("Interceptor %s raised; the record goes on without it", name)
