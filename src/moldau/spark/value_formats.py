"""Formats of values for `decode` and `encode`, and which of them this version can read or write. Needs no Spark.

A format with a registry finds its schema by the id in each value, at `schema.registry.url`. A codec is added by naming
its decoder here; a format without one is refused before the query starts.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import urlsplit

from moldau.base.settings import Value

URL: Final = "schema.registry.url"


class Rejected(NamedTuple):
    """A record that does not match: its row in the batch, and the reason."""

    row: int
    reason: str


class ValueDecoder(Protocol):
    """Port of a format: decodes the values of Arrow RecordBatches. Pickled for tasks."""

    def decode(self, batch: Any) -> tuple[Any, list[Rejected]]:
        """Decode the column `value`: the matching rows in the schema of the values, in order, and the rejected ones."""


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """`decoder` is the module and class of a ValueDecoder that takes the schema of the values; None: none yet."""

    registry: bool
    decoder: tuple[str, str] | None = None
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
        instead="leave out decode, and read the bytes with Spark's from_avro behind the five of the schema id",
        instead_of_encode="make the column value with Spark's to_avro, behind the five bytes of the schema id",
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


def value_decoder(form: str, columns: Any) -> ValueDecoder:
    """The decoder of a format that `decoding_problems` accepts; `columns` is Spark's schema of the values."""
    place = FORMATS[form].decoder
    assert place is not None, "checked with the options"
    made: ValueDecoder = getattr(importlib.import_module(place[0]), place[1])(columns)
    return made


def decoding_problems(form: str | None, url: str | None) -> dict[str, str]:
    """What is wrong with `decode` and `schema.registry.url`, by option."""
    if form is None:
        return {} if url is None else {URL: "has no effect without decode"}
    known = FORMATS[form]
    problems = {}
    if known.decoder is None:
        problems["decode"] = f"cannot be {form} in this version, which has no decoder for it; {known.instead}"
    if known.registry and url is None:
        problems[URL] = f"must be set with decode={form}: it is the address of the registry with the schemas"
    if not known.registry and url is not None:
        problems[URL] = f"has no effect with decode={form}, which finds no schema in a registry"
    return problems


def encoding_problems(form: str | None, url: str | None) -> dict[str, str]:
    """What is wrong with `encode` and `schema.registry.url`, by option. No format has an encoder yet."""
    if form is None:
        return {} if url is None else {URL: "has no effect without encode"}
    instead = FORMATS[form].instead_of_encode
    return {"encode": f"cannot be {form} in this version, which has no encoder for it; {instead}"}


def is_registry_url(value: Value) -> str | None:
    """Check of a setting: None, or what it must be."""
    try:
        parts = urlsplit(str(value))
        valid = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        valid = False
    return None if valid else "an address such as http://localhost:8081"
