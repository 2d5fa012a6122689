"""Every message in every version against two other implementations of the protocol: kio and kafka-python.

Three things must hold for any value: they read what we wrote and see the same fields, they write it again as the same
bytes, and we read these as the value we began with.
"""

import datetime
import importlib
from collections.abc import Callable, Iterator
from functools import cache
from io import BytesIO
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kafka.protocol.api_message import ApiMessage
from kio.index import load_request_schema, load_response_schema
from kio.serial import entity_reader, entity_writer

from moldau.wire.codec import decode, encode
from moldau.wire.declare import fields_of
from moldau.wire.messages.registry import APIS, ApiMessages
from moldau.wire.primitives import ZERO_UUID
from support.wire.values import form_of, messages

CASES = [
    pytest.param(api, cls, version, id=f"{cls.__name__}-{version}")
    for api in APIS
    if not api.own
    for cls in (api.request, api.response)
    for version in range(api.lowest, api.highest + 1)
]

KAFKA_PYTHON_MODULES = ("admin", "consumer", "metadata", "producer", "sasl")
NOT_IN_KAFKA_PYTHON = {"ConsumerGroupHeartbeat", "ConsumerGroupDescribe"}
NOT_IN_KAFKA_PYTHON |= {f"{verb}DelegationToken" for verb in ("Create", "Renew", "Expire", "Describe")}
NOT_IN_KAFKA_PYTHON |= {api.name for api in APIS if api.between_brokers}

Oracle = tuple[Callable[[bytes], Any], Callable[[Any], bytes]]  # reads and writes one message in one version

few = settings(max_examples=10, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize(("api", "cls", "version"), CASES)
@few
@given(data=st.data())
def test_others_agree(api: ApiMessages, cls: type, version: int, data: st.DataObject) -> None:
    message = data.draw(messages(cls, version))
    ours = encode(message, version)
    assert decode(cls, version, ours) == message

    for read, write in oracles(api, cls, version):
        theirs = read(ours)
        for path, mine, found in same_fields(wire_form(message, version), theirs, version):
            assert mine == found, path
        again = write(theirs)
        assert again == ours
        assert decode(cls, version, again) == message


def oracles(api: ApiMessages, cls: type, version: int) -> Iterator[Oracle]:
    yield kio(api, cls, version)
    if api.name not in NOT_IN_KAFKA_PYTHON:
        yield kafka_python(cls, version)


@cache
def kio(api: ApiMessages, cls: type, version: int) -> Oracle:
    entity_type = (load_request_schema if cls is api.request else load_response_schema)(api.key, version)
    read_entity, write_entity = entity_reader(entity_type), entity_writer(entity_type)

    def read(data: bytes) -> Any:
        entity, size = read_entity(data, 0)
        assert size == len(data)
        return entity

    def write(entity: Any) -> bytes:
        out = BytesIO()
        write_entity(out, entity)
        return out.getvalue()

    return read, write


@cache
def kafka_python(cls: type, version: int) -> Oracle:
    modules = (importlib.import_module(f"kafka.protocol.{name}") for name in KAFKA_PYTHON_MODULES)
    entity_type: Any = next(vars(module)[cls.__name__] for module in modules if cls.__name__ in vars(module))

    def read(data: bytes) -> Any:
        # Not its own `decode`: ApiVersionsResponse overrides that to read an answer with an error as version 0.
        entity = ApiMessage.decode.__func__(entity_type, data, version=version)
        entity._header = None  # which `encode` expects and `decode` leaves out
        return entity

    return read, lambda entity: bytes(entity.encode(version=version))


def wire_form(message: Any, version: int) -> Any:
    form: Any = form_of(type(message), version)
    return message if form is type(message) else form.from_newest(message)


def same_fields(ours: Any, theirs: Any, version: int) -> Iterator[tuple[str, Any, Any]]:
    """(where, our value, theirs) for all fields of this version, however deep."""
    if isinstance(ours, tuple) and theirs is not None:
        assert len(ours) == len(theirs)
        for mine, found in zip(ours, theirs, strict=True):
            yield from same_fields(mine, found, version)
    elif hasattr(ours, "__wire_fields__") and theirs is not None:
        for field in fields_of(type(ours)):
            if field.present(version):
                yield from same_fields(getattr(ours, field.name), their_field(theirs, field.name), version)
    else:
        yield type(ours).__name__, ours, plain(theirs, ours)


def their_field(theirs: Any, name: str) -> Any:
    """Under our name; kio drops the unit of a duration, kafka-python shortens `…_authorized_operations`."""
    for tried in (name, name.removesuffix("_ms"), name.removeprefix("topic_").removeprefix("cluster_")):
        if hasattr(theirs, tried):
            return getattr(theirs, tried)
    raise AttributeError(f"{type(theirs).__name__} has no {name}")


def plain(theirs: Any, ours: Any) -> Any:
    """Their value as we have it: codes for error names, milliseconds for times, a zero UUID for none."""
    match theirs:
        case datetime.timedelta():
            return round(theirs.total_seconds() * 1000)
        case datetime.datetime():
            return round(theirs.timestamp() * 1000)
        case set():
            bits = sum(1 << bit for bit in theirs)  # kafka-python's bit fields
            return bits - (1 << 32) if bits >> 31 else bits
        case memoryview():
            return bytes(theirs)
        case None if isinstance(ours, UUID):
            return ZERO_UUID
        case None if isinstance(ours, int):
            return -1 if ours == -1 else -(2**31)
    return getattr(theirs, "value", theirs)
