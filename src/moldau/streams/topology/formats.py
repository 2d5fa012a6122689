"""Formats of keys and values in topics: `raw`, `string` and `json(…)`. What encodes and decodes them is elsewhere."""

from dataclasses import dataclass
from typing import Final

from moldau.streams.sql.types import BINARY, STRING, Type, parse_schema
from moldau.streams.topology.models import Model, is_model, schema_of
from moldau.streams.topology.refusals import TopologyRefused


@dataclass(frozen=True, slots=True)
class Format:
    """How bytes become values of a type. `model` is the class that Python functions get instead of a dictionary."""

    name: str
    type: Type
    model: Model | None = None

    def __str__(self) -> str:
        shown = self.model.__name__ if self.model else self.type
        return self.name if self.name != "json" else f"json({shown})"


raw: Final = Format("raw", BINARY)  # bytes as they are
string: Final = Format("string", STRING)  # UTF-8


def json(schema: str | Type | Model) -> Format:
    """JSON with a schema: `json("user string, amount double")`, `json("bigint")`, a dataclass or a pydantic model."""
    if isinstance(schema, str):
        return Format("json", parse_schema(schema))
    if is_model(schema):
        return Format("json", schema_of(schema), schema)  # type: ignore[arg-type]
    if isinstance(schema, type):
        raise TopologyRefused(f"json(…) takes a schema as text, a dataclass or a pydantic model, not {schema.__name__}")
    return Format("json", schema)


def format_of(given: object, what: str) -> Format:
    """A format that a user gave: a Format, or a class, which means json."""
    if isinstance(given, Format):
        return given
    if is_model(given):
        return json(given)  # type: ignore[arg-type]
    hint = f': json("{given}")?' if isinstance(given, str) else ""
    raise TopologyRefused(f"{what} is raw, string or json(…), not {given!r}{hint}")


def default_format(kind: Type, model: Model | None = None) -> Format:
    """The format of a type that nobody chose: texts and bytes as they are, and JSON for the rest."""
    if kind == STRING:
        return string
    if kind == BINARY:
        return raw
    return Format("json", kind, model)
