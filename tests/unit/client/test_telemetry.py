"""Traces: the span of a send, the headers that carry it, the spans of those who receive and process the record."""

import asyncio
import threading
from typing import Any

import pytest

from moldau.client.errors import KafkaFailure
from moldau.client.interceptors import OutgoingRecord
from moldau.client.message import Message
from moldau.client.producer.delivery import Delivered
from moldau.client.serializers.port import Headers

REASON = "needs OpenTelemetry: pip install --editable '.[dev]' in a clone"
trace = pytest.importorskip("opentelemetry.trace", reason=REASON)
sdk = pytest.importorskip("opentelemetry.sdk.trace", reason=REASON)
export = pytest.importorskip("opentelemetry.sdk.trace.export", reason=REASON)
in_memory = pytest.importorskip("opentelemetry.sdk.trace.export.in_memory_span_exporter", reason=REASON)
telemetry = pytest.importorskip("moldau.client.telemetry", reason=REASON)

DELIVERED = Delivered("orders", 3, 42, 1)


class Traced:
    """Tracing, and the spans that it has ended."""

    def __init__(self) -> None:
        self.exporter = in_memory.InMemorySpanExporter()
        provider = sdk.TracerProvider()
        provider.add_span_processor(export.SimpleSpanProcessor(self.exporter))
        self.tracing = telemetry.Tracing(provider)
        self.tracer = provider.get_tracer("test")

    def spans(self) -> dict[str, Any]:
        return {span.name: span for span in self.exporter.get_finished_spans()}

    def send(self, headers: Headers | None = None) -> OutgoingRecord:
        sent: OutgoingRecord = self.tracing.on_send(OutgoingRecord("orders", "value", None, headers or [], None, None))
        return sent


@pytest.fixture
def traced() -> Traced:
    return Traced()


def message(headers: Headers) -> Message[Any, Any]:
    return Message.of("orders", 3, 42, value=b"x", headers=headers)


def attributes(span: Any) -> dict[str, Any]:
    return dict(span.attributes or {})


def test_a_sent_record_carries_its_span_which_ends_with_the_delivery(traced: Traced) -> None:
    with traced.tracer.start_as_current_span("request"):
        record = traced.send([("kept", b"1"), ("traceparent", b"of the record that is passed on")])
    assert "send orders" not in traced.spans()
    traced.tracing.on_delivery(record, DELIVERED)
    send, request = traced.spans()["send orders"], traced.spans()["request"]
    parent = f"00-{send.context.trace_id:032x}-{send.context.span_id:016x}-{send.context.trace_flags:02x}".encode()
    assert record.headers == [("kept", b"1"), ("traceparent", parent)]
    assert send.parent.span_id == request.context.span_id
    assert send.kind is trace.SpanKind.PRODUCER
    assert attributes(send) == {
        "messaging.system": "kafka",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "orders",
        "messaging.destination.partition.id": "3",
        "messaging.kafka.offset": 42,
    }


def test_a_failed_delivery_is_a_failed_span(traced: Traced) -> None:
    traced.tracing.on_delivery(traced.send(), KafkaFailure("MSG_SIZE_TOO_LARGE", "too large"))
    send = traced.spans()["send orders"]
    assert send.status.status_code is trace.StatusCode.ERROR
    assert attributes(send)["error.type"] == "MSG_SIZE_TOO_LARGE"


def test_processing_belongs_to_the_trace_of_the_sender(traced: Traced) -> None:
    received = message(traced.send().headers)
    with traced.tracing.process(received):
        answer = traced.send()
    traced.tracing.on_delivery(answer, DELIVERED)
    process, send = traced.spans()["process orders"], traced.spans()["send orders"]
    assert process.kind is trace.SpanKind.CONSUMER
    assert attributes(process)["messaging.kafka.offset"] == 42
    assert send.parent.span_id == process.context.span_id
    assert (b"%032x" % process.context.trace_id) in (received.headers[0][1] or b"")
    assert not trace.get_current_span().get_span_context().is_valid, "the context of processing has not ended"


def test_an_exception_fails_the_span_and_goes_on(traced: Traced) -> None:
    with pytest.raises(ZeroDivisionError), traced.tracing.process(message([])):
        _ = 1 / 0
    process = traced.spans()["process orders"]
    assert process.status.status_code is trace.StatusCode.ERROR
    assert attributes(process)["error.type"] == "ZeroDivisionError"
    assert [event.name for event in process.events] == ["exception"]


def test_handlers_of_both_kinds_are_wrapped(traced: Traced) -> None:
    @traced.tracing.traced
    def handle(message: Message[Any, Any]) -> int:
        return message.offset

    @traced.tracing.traced
    async def handle_later(message: Message[Any, Any]) -> int:
        await asyncio.sleep(0)
        return message.offset

    assert handle(message([])) == 42
    assert asyncio.run(handle_later(message([]))) == 42
    assert [span.name for span in traced.exporter.get_finished_spans()] == ["process orders"] * 2


def test_received_messages_are_linked_to_their_senders(traced: Traced) -> None:
    sent = [message(traced.send().headers) for _ in range(3)]
    strange = message([("traceparent", b"\xff no trace"), ("other", None)])
    assert traced.tracing.on_consume([*sent, strange]) == [*sent, strange]
    receive = traced.spans()["receive orders"]
    assert len(receive.links) == 3
    assert attributes(receive)["messaging.batch.message_count"] == 4


def test_spans_that_wait_for_deliveries_are_bounded(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "MOST_OPEN", 2)
    records = [traced.send() for _ in range(3)]
    assert len(traced.exporter.get_finished_spans()) == 1, "the third ends when it is sent"
    for record in records:
        traced.tracing.on_delivery(record, DELIVERED)
    assert len(traced.exporter.get_finished_spans()) == 3


def test_threads_share_one_tracing(traced: Traced) -> None:
    def many() -> None:
        for _ in range(100):
            traced.tracing.on_delivery(traced.send(), DELIVERED)

    threads = [threading.Thread(target=many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(traced.exporter.get_finished_spans()) == 400


def test_without_an_sdk_contexts_are_passed_on() -> None:
    tracing = telemetry.Tracing()  # of the API alone, which records nothing
    parent = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with tracing.process(message([("traceparent", parent)])):
        record = tracing.on_send(OutgoingRecord("out", "value", None, [], None, None))
    assert record.headers == [("traceparent", parent)]
