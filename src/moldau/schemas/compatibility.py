"""Compatibility of a new schema with earlier ones: which are compared, and in which direction. Knows no rule."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from moldau.schemas.schema import ParsedSchema, SchemaType


@dataclass(frozen=True, slots=True)
class Incompatibility:
    """One difference that breaks readers: the rule that it breaks, where, and what to say about it."""

    rule: str
    path: str
    message: str


class CompatibilityLevel(StrEnum):
    """What a subject promises. BACKWARD: new readers read old data. FORWARD: old readers read new data."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"

    @property
    def backward(self) -> bool:
        return self.startswith(("BACKWARD", "FULL"))

    @property
    def forward(self) -> bool:
        return self.startswith(("FORWARD", "FULL"))

    @property
    def transitive(self) -> bool:
        return self.endswith("_TRANSITIVE")


Differ: TypeAlias = Callable[[ParsedSchema, ParsedSchema], tuple[Incompatibility, ...]]


def check_compatibility(
    level: CompatibilityLevel, new: ParsedSchema, earlier: Sequence[ParsedSchema]
) -> tuple[Incompatibility, ...]:
    """What forbids `new` after `earlier`, of which the newest is last. Empty if it is compatible.

    Stops at the newest earlier schema that is incompatible: its differences are what the author has to look at.
    """
    for old in reversed(earlier if level.transitive else earlier[-1:]):
        found: list[Incompatibility] = []
        if level.backward:
            found += unreadable(reader=new, writer=old)
        if level.forward:
            found += unreadable(reader=old, writer=new)
        if found:
            return tuple(dict.fromkeys(found))
    return ()


def unreadable(*, reader: ParsedSchema, writer: ParsedSchema) -> tuple[Incompatibility, ...]:
    """What in data of `writer` a consumer with `reader` cannot read."""
    if reader.schema_type != writer.schema_type:
        message = f"the schema types differ: {' and '.join(sorted((reader.schema_type, writer.schema_type)))}"
        return (Incompatibility("SCHEMA_TYPE_CHANGED", "/", message),)
    return _differ(reader.schema_type)(reader, writer)


def _differ(schema_type: SchemaType) -> Differ:
    match schema_type:
        case SchemaType.AVRO:
            from moldau.schemas.avro.compatibility import compare_avro

            return compare_avro
        case SchemaType.JSON:
            from moldau.schemas.jsonschema.compatibility import compare_json_schemas

            return compare_json_schemas
        case SchemaType.PROTOBUF:
            from moldau.schemas.protobuf.compatibility import compare_protobuf

            return compare_protobuf
