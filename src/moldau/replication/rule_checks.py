"""Checks of the keys or values of records against one rule. Runs in worker processes, and knows no batch.

Payloads are checked in bulk, those of one schema together. A schema is compiled when the first payload needs it.
"""

from collections.abc import Sequence
from typing import Final

from moldau.replication.record_rules import Framing, SideRule
from moldau.schemas import InvalidSchema, PayloadChecker, SchemaType, checker, parse
from moldau.wire.compression import CorruptRecords
from moldau.wire.records import Record
from moldau.wire.varint import read_varint

FRAME_SIZE: Final = 5  # of Confluent's wire format: a zero byte and the schema's id
GUID_SIZE: Final = 17  # of the header that has a schema's GUID: the version of its form, and the GUID
GUID_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
MOST_INDEXES: Final = 64  # of a Protobuf message in messages
LONGEST_REASON: Final = 300  # characters

Failure = tuple[int, str]  # a record's place in its batch, and what is wrong with it


class RuleChecks:
    """`side` is "key" or "value"."""

    def __init__(self, rule: SideRule, side: str, *, compacts: bool) -> None:
        self.mode = rule.mode
        self._rule = rule
        self._side = side
        self._tombstones = compacts and side == "value"
        self._ids = frozenset(rule.ids)
        self._guids = frozenset(rule.guids)
        self._schemas = dict(rule.schemas)
        self._newest_type = self._schemas[rule.newest].type if self._schemas else ""
        self._checkers: dict[tuple[int, tuple[int, ...]], PayloadChecker | str] = {}  # str: why there is none

    def failures(self, records: Sequence[Record]) -> list[Failure]:
        """The records that do not conform."""
        failures = self._unframed(records) if self._rule.framing is Framing.REQUIRED else self._nonconforming(records)
        return [(place, f"{self._side.capitalize()} {reason[:LONGEST_REASON]}") for place, reason in failures]

    def _payloads(self, records: Sequence[Record]) -> list[bytes | None]:
        return [each.key for each in records] if self._side == "key" else [each.value for each in records]

    # ── ids alone ──

    def _unframed(self, records: Sequence[Record]) -> list[Failure]:
        failures = []
        header_name = GUID_HEADERS[self._side]
        for place, (record, payload) in enumerate(zip(records, self._payloads(records), strict=True)):
            if payload is None or (len(payload) >= FRAME_SIZE and not payload[0] and _id_of(payload) in self._ids):
                continue
            guid = next((text for name, text in record.headers if name == header_name), None)
            if guid is not None and len(guid) == GUID_SIZE:
                if guid[1:].hex() not in self._guids:
                    failures.append((place, f"has the GUID of a schema that is not one of {self._rule.what}."))
            elif len(payload) >= FRAME_SIZE and not payload[0]:
                failures.append((place, f"has schema id {_id_of(payload)}, which is not one of {self._rule.what}."))
            else:
                failures.append((place, f"has no schema id; use a serializer with a schema of {self._rule.what}."))
        return failures

    # ── payloads ──

    def _nonconforming(self, records: Sequence[Record]) -> list[Failure]:
        failures: list[Failure] = []
        framing, newest = self._rule.framing, self._rule.newest
        groups: dict[tuple[int, tuple[int, ...]], tuple[list[int], list[bytes]]] = {}
        plain: tuple[list[int], list[bytes]] = ([], [])
        for place, payload in enumerate(self._payloads(records)):
            if payload is None:
                if not self._tombstones:
                    failures.append((place, f"is missing; {self._rule.what} asks for one."))
            elif len(payload) < FRAME_SIZE or payload[0]:
                plain[0].append(place)
                plain[1].append(payload)
            elif framing is Framing.IGNORED:
                plain[0].append(place)
                plain[1].append(payload[FRAME_SIZE:])
            else:
                found = self._framed(payload)
                if isinstance(found, str):
                    failures.append((place, found))
                else:
                    key, rest = found
                    places, payloads = groups.setdefault(key, ([], []))
                    places.append(place)
                    payloads.append(rest)
        if plain[0]:
            places, payloads = groups.setdefault((newest, ()), ([], []))
            places += plain[0]
            payloads += plain[1]
        for key, (places, payloads) in groups.items():
            failures += self._check(key, places, payloads)
        return failures

    def _framed(self, payload: bytes) -> tuple[tuple[int, tuple[int, ...]], bytes] | str:
        """The schema, by id and for Protobuf the place of the message in it, and the payload behind its frame."""
        number = _id_of(payload)
        if number not in self._ids:
            if self._newest_type == SchemaType.AVRO:  # Avro without an id may begin with any bytes
                return (self._rule.newest, ()), payload
            return f"has schema id {number}, which is not one of {self._rule.what}."
        if self._schemas[number].type != SchemaType.PROTOBUF:
            return (number, ()), payload[FRAME_SIZE:]
        indexes = _message_indexes(payload)
        if indexes is None:
            return "does not say which message of its Protobuf schema it is."
        place, rest = indexes
        return (number, place), rest

    def _check(self, key: tuple[int, tuple[int, ...]], places: list[int], payloads: list[bytes]) -> list[Failure]:
        known = self._checkers.get(key)
        if known is None:
            known = self._checkers[key] = self._compile(key)
        if isinstance(known, str):
            return [(place, known) for place in places]
        of = self._rule.what
        return [(places[at], f"does not conform to {of}: {reason}") for at, reason in known.check(payloads).items()]

    def _compile(self, key: tuple[int, tuple[int, ...]]) -> PayloadChecker | str:
        number, indexes = key
        text = self._schemas[number]
        try:
            parsed = parse(SchemaType(text.type), text.text, dict(text.references))
            if not indexes:
                return checker(parsed)
            from moldau.schemas.protobuf.schema import ProtobufSchema

            assert isinstance(parsed, ProtobufSchema)
            return checker(parsed, parsed.message_at(indexes))
        except InvalidSchema as problem:
            return f"cannot be checked: {self._rule.what} cannot be used: {problem}"


def _id_of(payload: bytes) -> int:
    return int.from_bytes(payload[1:FRAME_SIZE], "big")


def _message_indexes(payload: bytes) -> tuple[tuple[int, ...], bytes] | None:
    """The place of a message in its Protobuf file, and the payload. None if the bytes have none."""
    try:
        count, at = read_varint(payload, FRAME_SIZE)
        if not 0 <= count <= MOST_INDEXES:
            return None
        indexes = []
        for _ in range(count):
            index, at = read_varint(payload, at)
            indexes.append(index)
    except (IndexError, CorruptRecords):
        return None
    return tuple(indexes) or (0,), payload[at:]
