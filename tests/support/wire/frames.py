"""Request frames of every API and version, encoded with kio, and ways to corrupt them."""

import dataclasses
import datetime
import io
import random
import struct
import types
import typing
import uuid
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from kio.index import load_request_schema
from kio.serial import entity_writer

from support.log.batches import Written, batch

CLIENT_ID = b"fuzz"
# Field values with which requests get far in the broker, but create and delete nothing.
BY_NAME: Mapping[str, object] = {
    "acks": -1,
    "allow_auto_topic_creation": False,
    "validate_only": True,
    "resource_type": 2,
    "num_partitions": 1,
    "count": 2,
    "replication_factor": 1,
    "assignments": (),
    "cursor": None,
    "client_software_name": "fuzz",
    "client_software_version": "1.0",
    "partition_max_bytes": 10_000,
    "max_bytes": 10_000,
    "min_bytes": 0,
    "replica_id": -1,
    "session_epoch": -1,
    "current_leader_epoch": -1,
    "response_partition_limit": 100,
    "transactional_id": None,
    "producer_id": -1,
    "producer_epoch": -1,
    "endpoint_type": 1,
}
BY_KIND: Mapping[str, object] = {
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "uint32": 0,
    "int64": 0,
    "float64": 0.0,
    "bool": False,
    "bytes": b"bytes",
    "timedelta_i32": datetime.timedelta(milliseconds=1),
    "timedelta_i64": datetime.timedelta(milliseconds=1),
}


class Frames:
    """Builds a valid request for any (API, version), about a given topic."""

    def __init__(self, topic: str, topic_id: uuid.UUID) -> None:
        self.topic, self.topic_id = topic, topic_id

    def frame(self, api: int, version: int, correlation: int) -> bytes:
        """Header and body, without the size in front."""
        schema = load_request_schema(api, version)
        body = io.BytesIO()
        entity_writer(schema)(body, self.fill(schema))
        header = struct.pack(">hhih", api, version, correlation, len(CLIENT_ID)) + CLIENT_ID
        return header + (b"\0" if schema.__flexible__ else b"") + body.getvalue()

    def fill(self, schema: type[Any]) -> Any:
        hints = typing.get_type_hints(schema)
        values = {
            field.name: self.value(field, hints[field.name])
            for field in dataclasses.fields(schema)
            if "tag" not in field.metadata
        }
        if schema.__name__ == "DeleteTopicsRequest":
            values = {name: () if name.endswith(("topics", "topic_names")) else each for name, each in values.items()}
        return schema(**values)

    def value(self, field: "dataclasses.Field[Any]", hint: Any) -> Any:
        if field.name in BY_NAME:
            return BY_NAME[field.name]
        kind = field.metadata.get("kafka_type")
        if typing.get_origin(hint) is tuple:
            return (self.single(kind, typing.get_args(hint)[0]),)
        if typing.get_origin(hint) in (types.UnionType, typing.Union):
            inner = next(each for each in typing.get_args(hint) if each is not types.NoneType)
            if typing.get_origin(inner) is tuple:
                return (self.single(kind, typing.get_args(inner)[0]),)
            return self.single(kind, inner)
        return self.single(kind, hint)

    def single(self, kind: str | None, hint: Any) -> Any:
        if dataclasses.is_dataclass(hint):
            return self.fill(typing.cast(type[Any], hint))
        if kind == "string":
            return self.topic
        if kind == "uuid":
            return self.topic_id
        if kind == "records":
            return batch(Written(b"fuzz"))
        assert kind is not None, hint
        return BY_KIND[kind]


# -- corruption: each function takes a frame body and a random generator, and returns another body

HOSTILE_INTEGERS = [
    struct.pack(">h", -1),
    struct.pack(">h", 0x7FFF),
    struct.pack(">i", -1),
    struct.pack(">i", 0x7FFFFFFF),
    struct.pack(">i", -0x80000000),
    struct.pack(">q", -1),
    struct.pack(">q", 0x7FFFFFFFFFFFFFFF),
    b"\xff\xff\xff\xff\x0f",  # the largest variable-length integer
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",  # and one that never ends
    b"\x80\x80\x80\x80\x00",
    b"\x00",
    b"\x01",
]
UNKNOWN_TAGS = b"\x02\x70\x03abc\xff\x7f\x01x"


def flip_bits(body: bytes, chance: random.Random) -> bytes:
    spoiled = bytearray(body)
    for _ in range(chance.randint(1, 4)):
        spoiled[chance.randrange(len(spoiled))] ^= 1 << chance.randrange(8)
    return bytes(spoiled)


def hostile_integer(body: bytes, chance: random.Random) -> bytes:
    number, position = chance.choice(HOSTILE_INTEGERS), chance.randrange(len(body))
    return body[:position] + number + body[position + len(number) :]


def cut_short(body: bytes, chance: random.Random) -> bytes:
    return body[: chance.randrange(len(body))]


def insert_noise(body: bytes, chance: random.Random) -> bytes:
    position = chance.randrange(len(body))
    return body[:position] + chance.randbytes(chance.randint(1, 9)) + body[position:]


def repeat_part(body: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(body))
    end = min(len(body), start + chance.randint(1, 32))
    return body[:end] + body[start:end] * chance.randint(1, 4) + body[end:]


def unknown_tags(body: bytes, chance: random.Random) -> bytes:
    """KIP-482: valid at the end of a flexible message, noise elsewhere."""
    return body[:-1] + UNKNOWN_TAGS


def other_header(body: bytes, chance: random.Random) -> bytes:
    return struct.pack(">hh", chance.choice((chance.randint(0, 95), -1, 9999)), chance.randint(-1, 20)) + body[4:]


def noise(body: bytes, chance: random.Random) -> bytes:
    return chance.randbytes(chance.randint(1, 200))


def untouched(body: bytes, chance: random.Random) -> bytes:
    return body


SPOILERS = (
    (flip_bits, 30),
    (hostile_integer, 25),
    (cut_short, 8),
    (insert_noise, 8),
    (repeat_part, 8),
    (unknown_tags, 8),
    (other_header, 4),
    (noise, 4),
    (untouched, 5),
)
WAYS = [way for way, _ in SPOILERS]
UP_TO = list(accumulate(weight for _, weight in SPOILERS))


def spoil(body: bytes, chance: random.Random) -> bytes:
    """Corrupt with one of the functions above, by weight; the size is right, except rarely."""
    spoiled = chance.choices(WAYS, cum_weights=UP_TO)[0](body, chance)
    size = len(spoiled)
    if chance.random() < 0.01:
        size = chance.choice((-1, 0, 1, size + 50, 2**31 - 1, -(2**31), 200 << 20))
    return struct.pack(">i", size) + spoiled
