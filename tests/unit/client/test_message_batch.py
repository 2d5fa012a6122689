"""MessageBatch: a sequence of messages that makes them when they are asked for."""

import json

import pytest
from confluent_kafka import Message as KafkaMessage

from moldau.client.message import RAW, Deserializers, Message, MessageBatch
from moldau.client.serializers.port import SerializerContext

RECORDS = [KafkaMessage("t", 0, offset, b"k", b'{"n": %d}' % offset) for offset in range(3)]


def test_bytes_need_no_deserializer() -> None:
    batch: MessageBatch[bytes, bytes] = MessageBatch(RECORDS, RAW)
    assert [message.value for message in batch] == [b'{"n": 0}', b'{"n": 1}', b'{"n": 2}']
    assert [message.offset for message in batch[1:]] == [1, 2]
    assert (len(batch), batch[-1].offset, batch[0].key) == (3, 2, b"k")
    with pytest.raises(IndexError):
        batch[3]


def test_values_are_deserialized_once() -> None:
    calls = []

    def read(data: bytes | None, context: SerializerContext) -> object:
        calls.append(data)
        return json.loads(data or b"null")

    batch: MessageBatch[bytes, dict[str, int]] = MessageBatch(RECORDS, Deserializers(value=read))
    for _ in range(2):
        assert [message.value["n"] for message in batch] == [0, 1, 2]
    assert batch[0].value == {"n": 0}
    assert len(calls) == 3


def test_a_message_keeps_what_it_has_read() -> None:
    calls = []

    def read(data: bytes | None, context: SerializerContext) -> object:
        calls.append(context.field)
        return data

    message: Message[object, object] = Message(RECORDS[0], Deserializers(read, read))
    assert message.key == message.key == b"k"
    assert message.value == message.value
    assert calls == ["key", "value"]
