"""What the records of a topic must conform to, as values that a broker sends to its worker processes. Pure.

The rules hold everything that a check needs, schemas included: a worker asks nobody.
"""

import json
from enum import StrEnum
from hashlib import sha256
from typing import Any, NamedTuple

from moldau.log.settings import LogConfig


class Mode(StrEnum):
    """What happens to a record that does not conform."""

    REJECT = "reject"
    DEAD_LETTER = "dead-letter"
    WARN = "warn"


class Framing(StrEnum):
    """What a rule makes of Confluent's wire format: a zero byte and a schema's id before the payload."""

    OPTIONAL = "optional"  # an id must be one of the rule's, and its schema counts; without one the newest does
    IGNORED = "ignored"  # the payload counts, whatever its id is
    REQUIRED = "required"  # the id must be one of the rule's, and the payload is not looked at


class SchemaText(NamedTuple):
    """A schema, and the schemas that it refers to: each by its name, after those that it needs itself."""

    type: str  # AVRO, JSON or PROTOBUF
    text: str
    references: tuple[tuple[str, str], ...] = ()

    @classmethod
    def from_json(cls, value: Any) -> "SchemaText":
        kind, text, references = value
        return cls(kind, text, tuple((name, each) for name, each in references))


class SideRule(NamedTuple):
    """A rule for the keys or for the values of a topic."""

    what: str  # of the topic's: words for messages
    mode: Mode
    framing: Framing
    ids: tuple[int, ...] = ()  # that a record may have
    schemas: tuple[tuple[int, SchemaText], ...] = ()  # by id
    newest: int = 0  # the id of the schema for records without one
    guids: tuple[str, ...] = ()  # that a record's header may have in place of an id

    @classmethod
    def from_json(cls, value: Any) -> "SideRule":
        what, mode, framing, ids, schemas, newest, guids = value
        texts = tuple((number, SchemaText.from_json(text)) for number, text in schemas)
        return cls(what, Mode(mode), Framing(framing), tuple(ids), texts, newest, tuple(guids))


class Storage(NamedTuple):
    """The settings of a topic that need its records as well."""

    compacts: bool
    compression_type: str
    gzip_level: int
    lz4_level: int
    zstd_level: int

    @classmethod
    def of(cls, config: LogConfig) -> "Storage":
        levels = (config.compression_gzip_level, config.compression_lz4_level, config.compression_zstd_level)
        return cls(config.compacts, config.compression_type, *levels)

    def config(self) -> LogConfig:
        return LogConfig(
            cleanup_policy=frozenset({"compact"} if self.compacts else {"delete"}),
            compression_type=self.compression_type,
            compression_gzip_level=self.gzip_level,
            compression_lz4_level=self.lz4_level,
            compression_zstd_level=self.zstd_level,
        )


class RecordRules(NamedTuple):
    topic: str
    storage: Storage
    largest_letter: int  # bytes of a batch of dead letters
    key: tuple[SideRule, ...]
    value: tuple[SideRule, ...]

    def packed(self) -> str:
        return json.dumps(self)

    @classmethod
    def unpacked(cls, packed: str) -> "RecordRules":
        topic, storage, largest, key, value = json.loads(packed)
        sides = [tuple(SideRule.from_json(each) for each in side) for side in (key, value)]
        return cls(topic, Storage(*storage), largest, *sides)


class PackedRules(NamedTuple):
    """Rules as they are sent, with a name for the next time."""

    name: str
    packed: str

    @classmethod
    def of(cls, rules: RecordRules) -> "PackedRules":
        packed = rules.packed()
        return cls(sha256(packed.encode()).hexdigest(), packed)
