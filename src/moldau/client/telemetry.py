"""Traces of records by OpenTelemetry: spans for sending, receiving and processing, joined by W3C headers of the record.

Needs the extra `otel`, which is OpenTelemetry's API; the application chooses an SDK and where spans go. Without an SDK
contexts are still passed on. Nothing else in the client knows of tracing: this is an interceptor.
"""

import functools
import inspect
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

from opentelemetry import context, trace
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.context import Context
from opentelemetry.propagators.composite import CompositePropagator
from opentelemetry.propagators.textmap import Getter, Setter
from opentelemetry.trace import Link, Span, SpanKind, Status, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from moldau.client.errors import ClientError
from moldau.client.interceptors import ConsumerInterceptor, OutgoingRecord, ProducerInterceptor
from moldau.client.message import Message
from moldau.client.serializers.port import Headers

if TYPE_CHECKING:
    from moldau.client.producer.delivery import Delivered

P = ParamSpec("P")
R = TypeVar("R")

TRACEPARENT = "traceparent"
MOST_OPEN = 200_000  # spans of records that are not delivered yet; more than these end when they are sent
MOST_LINKS = 128  # of a batch's span to those that sent its messages; SDKs drop more

_PROPAGATOR = CompositePropagator([TraceContextTextMapPropagator(), W3CBaggagePropagator()])


class _InHeaders(Setter[Headers], Getter[Headers]):
    """Record headers as OpenTelemetry's carrier."""

    def set(self, carrier: Headers, key: str, value: str) -> None:
        carrier[:] = [header for header in carrier if header[0] != key]  # of a record that is passed on
        carrier.append((key, value.encode()))

    def get(self, carrier: Headers, key: str) -> list[str] | None:
        found = [(value or b"").decode("latin-1") for name, value in carrier if name == key]
        return found[-1:] or None

    def keys(self, carrier: Headers) -> list[str]:
        return [name for name, _ in carrier]


_HEADERS = _InHeaders()


class Tracing(ProducerInterceptor, ConsumerInterceptor):
    """Give it to a producer and to a consumer: `interceptors=[Tracing()]`.

    A send span ends when the record is delivered. What is sent inside `process` belongs to the trace of that message.
    """

    def __init__(self, tracer_provider: TracerProvider | None = None) -> None:
        self._tracer: Tracer = trace.get_tracer("moldau.client", tracer_provider=tracer_provider)
        self._open: dict[bytes, Span] = {}  # by the record's traceparent
        self._mutex = threading.Lock()

    def on_send(self, record: OutgoingRecord) -> OutgoingRecord:
        span = self._tracer.start_span(
            f"send {record.topic}", kind=SpanKind.PRODUCER, attributes=_attributes("send", record.topic)
        )
        _PROPAGATOR.inject(record.headers, trace.set_span_in_context(span), _HEADERS)
        parent = _traceparent(record.headers)
        if parent is None or not self._keep(parent, span):
            span.end()
        return record

    def on_delivery(self, record: OutgoingRecord, outcome: "Delivered | ClientError") -> None:
        parent = _traceparent(record.headers)
        with self._mutex:
            span = None if parent is None else self._open.pop(parent, None)
        if span is None:
            return
        if isinstance(outcome, ClientError):
            _failed(span, outcome, outcome.name)
        else:
            span.set_attribute("messaging.destination.partition.id", str(outcome.partition))
            span.set_attribute("messaging.kafka.offset", outcome.offset)
        span.end()

    def on_consume(self, messages: Sequence[Message[Any, Any]]) -> Sequence[Message[Any, Any]]:
        """A span for messages that come together, linked to those that sent them."""
        if messages:
            topics = {message.topic for message in messages}
            topic = topics.pop() if len(topics) == 1 else ""
            links = [link for link in map(_link, messages[:MOST_LINKS]) if link]
            attributes = {**_attributes("receive", topic), "messaging.batch.message_count": len(messages)}
            name = f"receive {topic}".rstrip()
            self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes, links=links).end()
        return messages

    @contextmanager
    def process(self, message: Message[Any, Any]) -> Iterator[Span]:
        """A span around the processing of a message, in the trace of the one that sent it."""
        sent = _PROPAGATOR.extract(message.headers, Context(), _HEADERS)
        attributes: dict[str, str | int] = {
            **_attributes("process", message.topic),
            "messaging.destination.partition.id": str(message.partition),
            "messaging.kafka.offset": message.offset,
        }
        around = trace.get_current_span().get_span_context()
        span = self._tracer.start_span(
            f"process {message.topic}",
            context=sent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=[Link(around)] if around.is_valid else [],
        )
        token = context.attach(trace.set_span_in_context(span, sent))
        try:
            yield span
        except Exception as error:
            span.record_exception(error)
            _failed(span, error)
            raise
        finally:
            context.detach(token)
            span.end()

    def traced(self, handler: Callable[P, R]) -> Callable[P, R]:
        """The handler, each call of it inside `process`; for `consumer.run(tracing.traced(handler))`."""
        if inspect.iscoroutinefunction(handler):

            @functools.wraps(handler)
            async def coroutine(*args: P.args, **kwargs: P.kwargs) -> Any:
                with self.process(cast(Message[Any, Any], args[0])):
                    return await handler(*args, **kwargs)

            return cast(Callable[P, R], coroutine)

        @functools.wraps(handler)
        def function(*args: P.args, **kwargs: P.kwargs) -> R:
            with self.process(cast(Message[Any, Any], args[0])):
                return handler(*args, **kwargs)

        return function

    def _keep(self, parent: bytes, span: Span) -> bool:
        if not span.is_recording():
            return False
        with self._mutex:
            if len(self._open) >= MOST_OPEN:
                return False
            self._open[parent] = span
        return True


def _attributes(operation: str, topic: str) -> dict[str, str | int]:
    """OpenTelemetry's names for messaging."""
    return {
        "messaging.system": "kafka",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
        "messaging.destination.name": topic,
    }


def _traceparent(headers: Headers) -> bytes | None:
    for name, value in reversed(headers):
        if name == TRACEPARENT:
            return value
    return None


def _link(message: Message[Any, Any]) -> Link | None:
    sent = trace.get_current_span(_PROPAGATOR.extract(message.headers, Context(), _HEADERS)).get_span_context()
    return Link(sent) if sent.is_valid else None


def _failed(span: Span, error: Exception, name: str = "") -> None:
    span.set_status(Status(StatusCode.ERROR, str(error)))
    span.set_attribute("error.type", name or type(error).__name__)
