"""Retry: what happens to a message whose handler raised. Decides; sends nothing, waits for nothing, reads no clock."""

import dataclasses
import math
import traceback
from typing import Any, NamedTuple, TypeAlias

from moldau.base.ids import Millis
from moldau.client.arguments import check_number, check_seconds, check_text
from moldau.client.errors import DeserializationFailed, InvalidUse
from moldau.client.message import Message
from moldau.client.serializers.port import Headers
from moldau.wire.dead_letters import (
    ATTEMPT,
    DUE,
    NAMES,
    STACK,
    Origin,
    encoded,
    letter_headers,
    number_in,
    origin_in,
)

REASON_BYTES = 1 << 10
STACK_BYTES = 8 << 10  # its end tells most

AnyMessage: TypeAlias = Message[Any, Any]


@dataclasses.dataclass(frozen=True, slots=True)
class Backoff:
    """Seconds before a message is tried again: `first`, then `factor` times as many each time, `most` at most."""

    first: float = 0.1
    factor: float = 2.0
    most: float = 30.0

    def __post_init__(self) -> None:
        for name in ("first", "factor", "most"):
            check_seconds(name, getattr(self, name))
        if not (0 <= self.first <= self.most < math.inf and 1 <= self.factor < math.inf):
            raise InvalidUse(f"{self}: needs 0 <= first <= most, and a factor of 1 or more")

    def delay(self, attempts: int) -> float:
        """Seconds to wait after so many attempts."""
        delay = self.first
        for _ in range(attempts - 1):
            if delay >= self.most or self.factor == 1 or not delay:
                break
            delay *= self.factor
        return min(delay, self.most)


@dataclasses.dataclass(frozen=True, slots=True)
class Retry:
    """Try a message again when its handler raises, up to `times` times; then write it to the topic `dead`, or raise.

    Without `topic` a message is tried again in place: those behind it, of its key or partition, wait, and order is
    kept. With `topic` the message is written there, and the others go on; the same consumer reads that topic, which
    belongs to its group alone. `keep_order=True` refuses that.

    Exceptions that are not among `retry_on` end `run`. A message that cannot be deserialized is not tried again.
    """

    times: int = 5
    backoff: Backoff = Backoff()
    topic: str | None = None
    dead: str | None = None
    keep_order: bool = False
    retry_on: tuple[type[Exception], ...] | type[Exception] = (Exception,)

    def __post_init__(self) -> None:
        check_number("times", self.times, 0)
        check_text("topic", self.topic)
        check_text("dead", self.dead)
        if not isinstance(self.backoff, Backoff):
            raise InvalidUse(f"backoff={self.backoff!r}: give a Backoff(…)")
        if self.topic is not None and self.keep_order:
            raise InvalidUse("a retry topic does not keep order: leave out topic to try again in place, or keep_order")
        if self.topic is not None and self.topic == self.dead:
            raise InvalidUse(f"{self.topic} cannot be both: the topic of retries and that of dead letters")
        kinds = self.retry_on if isinstance(self.retry_on, tuple) else (self.retry_on,)
        if not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
            raise InvalidUse(f"retry_on takes subclasses of Exception, not {self.retry_on!r}")

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics that are written to."""
        return tuple(each for each in (self.topic, self.dead) if each is not None)


class TryAgain(NamedTuple):
    """Try the message again, in place, when these seconds are over."""

    delay_s: float


class Forward(NamedTuple):
    """Write the message to this topic, with these headers; then it is done."""

    topic: str
    headers: Headers


class GiveUp(NamedTuple):
    """Raise what the handler raised; the message is not done."""


Verdict: TypeAlias = TryAgain | Forward | GiveUp


def judge(retry: Retry | None, message: AnyMessage, failures: int, error: Exception, now: Millis) -> Verdict:
    """What to do after the handler raised `error`, for the n-th time since the message was taken."""
    if retry is None:
        return GiveUp()
    unreadable = isinstance(error, DeserializationFailed) and _is_about(error, message)
    if not unreadable and not isinstance(error, retry.retry_on):
        return GiveUp()
    attempts = failures + (number_in(message.headers, ATTEMPT) if message.topic == retry.topic else 0)
    if unreadable or attempts > retry.times:
        if retry.dead is None:
            return GiveUp()
        return Forward(retry.dead, _headers(retry, message, attempts, error))
    delay = retry.backoff.delay(attempts)
    if retry.topic is None:
        return TryAgain(delay)
    due = (DUE, str(now + math.ceil(delay * 1000)).encode())
    return Forward(retry.topic, [*_headers(retry, message, attempts, error), due])


def wait_s(retry: Retry | None, message: AnyMessage, now: Millis) -> float:
    """How long a record of a retry topic is not due yet; 0 for all others.

    Never longer than the longest back-off: clocks of machines differ.
    """
    if retry is None or message.topic != retry.topic:
        return 0.0
    left = (number_in(message.headers, DUE) - now) / 1000
    return min(max(left, 0.0), retry.backoff.most)


def origin_of(message: AnyMessage, retry_topic: str | None) -> Origin:
    """The record that failed first: the one that a record of the retry topic tells of, or the message itself."""
    told = origin_in(message.headers) if message.topic == retry_topic else None
    return told or Origin(message.topic, message.partition, message.offset, message.timestamp)


def _headers(retry: Retry, message: AnyMessage, attempts: int, error: Exception) -> Headers:
    """Those of the message, and why it is where it is."""
    own = [(name, value) for name, value in message.headers if name not in NAMES]
    reason = encoded("".join(traceback.format_exception_only(error)).strip())[:REASON_BYTES]
    stack = encoded("".join(traceback.format_exception(error)))[-STACK_BYTES:]
    return [
        *own,
        *letter_headers(reason.decode(errors="ignore"), origin_of(message, retry.topic)),
        (ATTEMPT, str(attempts).encode()),
        (STACK, stack.decode(errors="ignore").encode()),
    ]


def _is_about(error: DeserializationFailed, message: AnyMessage) -> bool:
    """Handlers may read other messages, of other consumers."""
    return (error.partition, error.offset) == (message.topic_partition, message.offset)
