"""Formats of values for `decode` and `encode`, and which of them this version can read or write. Needs no Spark.

A format with a registry finds its schema by the id in each value, at `schema.registry.url`. A codec is added by naming
its decoder and encoder here; a format without one is refused before the query starts.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from moldau.base.settings import Value

URL: Final = "schema.registry.url"
USER_INFO: Final = "schema.registry.basic.auth.user.info"
CA: Final = "schema.registry.ssl.ca.location"
SUBJECT: Final = "valueSubject"
SCHEMA_ID: Final = "use.schema.id"
MAGIC: Final = 0  # the first byte of a value whose schema is in a registry
FRAME: Final = 5  # bytes in front of its data: the magic byte and the id of the schema
READER_ID: Final = "schema.registry.id"  # in the metadata of columns that were made from a schema


@dataclass(frozen=True, slots=True)
class Registry:
    """Address and credentials of a schema registry; travels to tasks. `ca` is the path of a PEM file."""

    url: str
    user_info: str = field(default="", repr=False)  # user:password
    ca: str = ""


class Rejected(NamedTuple):
    """A record that does not match: its row in the batch, and the reason."""

    row: int
    reason: str


class ValueDecoder(Protocol):
    """Port of a format: decodes the values of Arrow RecordBatches. Pickled for tasks."""

    def decode(self, batch: Any) -> tuple[Any, list[Rejected]]:
        """Decode the column `value`: the matching rows in the schema of the values, in order, and the rejected ones."""


class ValueEncoder(Protocol):
    """Port of a format: encodes values for topics. Made in a task."""

    def encode(self, values: Any) -> Any:
        """An Arrow array of structs as one of bytes. Raises QueryFailed for a value that does not fit."""


@dataclass(frozen=True, slots=True)
class Encoding:
    """Format and schema of written values: the schema of this id, or the latest version of the subject."""

    form: str
    registry: Registry
    subject: str
    schema_id: int | None = None


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """`decoder` and `encoder` are the module and class of a ValueDecoder and a ValueEncoder; None: none yet.

    A decoder takes the schema of the values and, with a registry, that. `columns` is a function from a registry and a
    subject to the schema of its latest version. An encoder takes an Encoding.
    """

    registry: bool
    decoder: tuple[str, str] | None = None
    encoder: tuple[str, str] | None = None
    columns: tuple[str, str] | None = None
    instead: str = ""  # of decode
    instead_of_encode: str = ""


FORMATS: Final[Mapping[str, ValueFormat]] = {
    "json": ValueFormat(
        registry=False,
        decoder=("moldau.spark.source.decode", "Decoder"),
        instead_of_encode="make the column value with to_json(struct(...))",
    ),
    "avro": ValueFormat(
        registry=True,
        decoder=("moldau.spark.source.avro", "AvroDecoder"),
        encoder=("moldau.spark.sink.avro", "AvroEncoder"),
        columns=("moldau.spark.source.avro", "latest_columns"),
    ),
    "protobuf": ValueFormat(
        registry=True,
        instead="leave out decode, and read the bytes with Spark's from_protobuf behind the schema id and indexes",
        instead_of_encode="make the column value with Spark's to_protobuf, behind the schema id and indexes",
    ),
    "json-schema": ValueFormat(
        registry=True,
        instead="leave out decode, and read the bytes with from_json behind the five of the schema id",
        instead_of_encode="make the column value with to_json(struct(...)), behind the five bytes of the schema id",
    ),
}


REGISTRY_FORMATS: Final = frozenset(name for name, each in FORMATS.items() if each.registry)


def value_decoder(form: str, columns: Any, registry: Registry | None = None) -> ValueDecoder:
    """The decoder of a format that `decoding_problems` accepts; `columns` is Spark's schema of the values."""
    made: ValueDecoder = _load(FORMATS[form].decoder)(*((columns, registry) if FORMATS[form].registry else (columns,)))
    return made


def value_encoder(encoding: Encoding) -> ValueEncoder:
    """The encoder of a format that `encoding_problems` accepts."""
    made: ValueEncoder = _load(FORMATS[encoding.form].encoder)(encoding)
    return made


def registered_columns(form: str, registry: Registry, subject: str) -> Any:
    """Spark's schema of the values of a subject, from its latest version."""
    return _load(FORMATS[form].columns)(registry, subject)


def _load(place: tuple[str, str] | None) -> Any:
    assert place is not None, "checked with the options"
    return getattr(importlib.import_module(place[0]), place[1])


def decoding_problems(form: str | None, given: Mapping[str, Value]) -> dict[str, str]:
    """What is wrong with `decode` and the options of a registry, by option."""
    if form is not None and FORMATS[form].decoder is None:
        return {"decode": f"cannot be {form} in this version, which has no decoder for it; {FORMATS[form].instead}"}
    return _registry_problems("decode", form, given)


def encoding_problems(form: str | None, given: Mapping[str, Value], *, exactly_once: bool) -> dict[str, str]:
    """What is wrong with `encode` and the options of a registry, by option."""
    if form is not None and FORMATS[form].encoder is None:
        instead = FORMATS[form].instead_of_encode
        return {"encode": f"cannot be {form} in this version, which has no encoder for it; {instead}"}
    problems = _registry_problems("encode", form, given)
    if form is None:
        return problems
    if not {"topic", SUBJECT, SCHEMA_ID} & given.keys():
        problems[SUBJECT] = f"or {SCHEMA_ID} must be set with encode when rows name the topics they go to"
    if exactly_once and SCHEMA_ID not in given:
        problems[SCHEMA_ID] = (
            "must be set with delivery=exactly-once: with the latest version of a subject, a task that runs again "
            "might write other bytes than before"
        )
    return problems


def _registry_problems(what: str, form: str | None, given: Mapping[str, Value]) -> dict[str, str]:
    used = [name for name in (URL, USER_INFO, CA, SUBJECT, SCHEMA_ID) if name in given]
    if form is None:
        return dict.fromkeys(used, f"has no effect without {what}")
    if not FORMATS[form].registry:
        return dict.fromkeys(used, f"has no effect with {what}={form}, which finds no schema in a registry")
    if URL not in given:
        return {URL: f"must be set: {what}={form} needs a schema registry, such as http://localhost:8081"}
    return {}


def is_registry_url(value: Value) -> str | None:
    """Check of a setting: None, or what it must be."""
    try:
        parts = urlsplit(str(value))
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        valid = False
    return None if valid else "an address such as http://localhost:8081"
