"""Schemas as values: their types, references, limits and errors. No format is parsed here."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

MAX_SCHEMA_BYTES = 1_000_000  # of one text in UTF-8: a schema is one record of `_schemas`
MAX_REFERENCED_BYTES = 8 * MAX_SCHEMA_BYTES  # of all referenced texts together
MAX_REFERENCES = 1_000  # transitively
MAX_REASON = 300  # characters of the reason why a payload does not fit
MAX_NESTING = 64  # of types in types; deeper schemas come from programs that went wrong


class SchemaType(StrEnum):
    """The formats that a registry stores, with the names of its interface."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


@dataclass(frozen=True, slots=True, order=True)
class Reference:
    """A name that a schema uses, and the subject and version whose schema defines it."""

    name: str
    subject: str
    version: int


def normalized_references(references: Iterable[Reference]) -> tuple[Reference, ...]:
    """References in normal form: each once, sorted."""
    return tuple(sorted(set(references)))


class InvalidSchema(ValueError):
    """A text that is no schema of its type. The message says where: a path into it, or line and column."""


class ParsedSchema(Protocol):
    """A valid schema, immutable, all its references resolved."""

    @property
    def schema_type(self) -> SchemaType: ...

    @property
    def text(self) -> str:
        """The canonical text, which a registry stores."""

    @property
    def normalized(self) -> str:
        """The normal form, which is the same for texts that differ only in order and notation."""

    @property
    def references(self) -> Mapping[str, str]:
        """The referenced texts by name, as they were given to `parse`."""

    @property
    def full_name(self) -> str | None:
        """The name of the record, type or first message; of a JSON Schema its title."""

    def formatted(self, style: str) -> str:
        """The text for the query `format` of a registry; the canonical text for a style that the type does not have."""


def check_limits(text: str, references: Mapping[str, str]) -> None:
    """Refuse what is empty, or too large to be worth parsing."""
    if not text.strip():
        raise InvalidSchema("the schema is empty")
    if len(text) > MAX_SCHEMA_BYTES or len(text.encode("utf-8", "replace")) > MAX_SCHEMA_BYTES:
        raise InvalidSchema(f"the schema is larger than {MAX_SCHEMA_BYTES} bytes: split it with references")
    if len(references) > MAX_REFERENCES:
        raise InvalidSchema(f"{len(references)} references, transitively; at most {MAX_REFERENCES} are allowed")
    if sum(map(len, references.values())) > MAX_REFERENCED_BYTES:
        raise InvalidSchema(f"the referenced schemas are larger than {MAX_REFERENCED_BYTES} bytes together")


def reason(text: str) -> str:
    """A reason that is short enough for an error message."""
    return text if len(text) <= MAX_REASON else f"{text[: MAX_REASON - 1]}…"
