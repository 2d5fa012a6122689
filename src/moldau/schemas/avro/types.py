"""Avro types as values. Named types are shared by reference, so a recursive schema is a cyclic graph."""

from dataclasses import dataclass, field
from typing import TypeAlias

from moldau.schemas.json_text import Json, JsonObject

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


@dataclass(slots=True, eq=False)
class Primitive:
    kind: str
    props: JsonObject = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Array:
    items: "AvroType"
    props: JsonObject = field(default_factory=dict)
    kind = "array"


@dataclass(slots=True, eq=False)
class Map:
    values: "AvroType"
    props: JsonObject = field(default_factory=dict)
    kind = "map"


@dataclass(slots=True, eq=False)
class Union:
    branches: "tuple[AvroType, ...]"
    kind = "union"


@dataclass(slots=True, eq=False)
class Named:
    """What record, enum and fixed share."""

    name: str  # without the namespace
    namespace: str  # empty for none
    doc: str | None = None
    aliases: tuple[str, ...] = ()  # full names
    props: JsonObject = field(default_factory=dict)

    @property
    def full_name(self) -> str:
        return f"{self.namespace}.{self.name}" if self.namespace else self.name


@dataclass(slots=True, eq=False)
class Enum(Named):
    symbols: tuple[str, ...] = ()
    default: str | None = None
    kind = "enum"


@dataclass(slots=True, eq=False)
class Fixed(Named):
    size: int = 0
    kind = "fixed"


@dataclass(slots=True, eq=False)
class Field:
    name: str
    type: "AvroType"
    doc: str | None = None
    has_default: bool = False
    default: Json = None
    order: str = "ascending"
    aliases: tuple[str, ...] = ()
    props: JsonObject = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Record(Named):
    fields: tuple[Field, ...] = ()
    kind: str = "record"  # or "error", of protocols


NamedType: TypeAlias = Record | Enum | Fixed
AvroType: TypeAlias = Primitive | Array | Map | Union | Record | Enum | Fixed


def name_of(schema: AvroType) -> str:
    """The name by which unions tell branches apart: the full name of a named type, the kind of another."""
    return schema.full_name if isinstance(schema, Named) else schema.kind
