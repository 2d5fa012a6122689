"""Decoding of Protobuf payloads with the descriptors of a schema. Fields that it does not have do not fit."""

from collections.abc import Sequence

from google.protobuf import message_factory
from google.protobuf.message import DecodeError, Message

from moldau.schemas.protobuf.pool import build_pool
from moldau.schemas.protobuf.schema import ProtobufSchema
from moldau.schemas.schema import InvalidSchema, ParsedSchema, reason


class ProtobufChecker:
    """Decodes payloads as one message type."""

    def __init__(self, message: type[Message]) -> None:
        self._message = message
        self._required = _has_required(message)

    def check(self, values: Sequence[bytes]) -> dict[int, str]:
        message, required = self._message(), self._required
        parse, size, discard = message.ParseFromString, message.ByteSize, message.DiscardUnknownFields
        name = message.DESCRIPTOR.full_name
        faults: dict[int, str] = {}
        for index, value in enumerate(values):
            try:
                parse(value)
            except DecodeError as error:
                faults[index] = reason(f"no message {name}: {error}")
                continue
            if required and not message.IsInitialized():
                faults[index] = f"no message {name}: lacks a required field"
                continue
            encoded = size()
            discard()
            if size() != encoded:
                faults[index] = f"no message {name}: has a field that the schema does not have"
        return faults


def protobuf_checker(parsed: ParsedSchema, name: str | None) -> ProtobufChecker:
    assert isinstance(parsed, ProtobufSchema)
    wanted = name or (parsed.message_at([0]) if parsed.linked.root.messages else "")
    pool = build_pool(parsed.linked)
    try:
        descriptor = pool.FindMessageTypeByName(wanted)
    except KeyError:
        raise InvalidSchema(f"the schema has no message {wanted}" if wanted else "the schema has no message") from None
    return ProtobufChecker(message_factory.GetMessageClass(descriptor))


def _has_required(root: type[Message]) -> bool:
    """Whether any message in it, however deep, has a required field."""
    seen: set[str] = set()
    waiting = [root.DESCRIPTOR]
    while waiting:
        message = waiting.pop()
        if message.full_name in seen:
            continue
        seen.add(message.full_name)
        for field in message.fields:
            if field.is_required:
                return True
            if field.message_type is not None:
                waiting.append(field.message_type)
    return False
