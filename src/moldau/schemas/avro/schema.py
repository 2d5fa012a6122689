"""An Avro schema as registries handle it: canonical text, normal form, references by full name."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from moldau.schemas.avro.parsing import Parser
from moldau.schemas.avro.printing import canonical_json, normal_text
from moldau.schemas.avro.types import AvroType, Named, NamedType
from moldau.schemas.json_text import Json, read_json, write_json
from moldau.schemas.schema import InvalidSchema, SchemaType

_BARE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.]*")


@dataclass(frozen=True, slots=True, eq=False)
class AvroSchema:
    """A parsed Avro schema. `known` are the full names that its references define."""

    text: str
    references: Mapping[str, str]
    root: AvroType
    known: frozenset[str]

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.AVRO

    @property
    def normalized(self) -> str:
        return normal_text(self.root, set(self.known))

    @property
    def full_name(self) -> str | None:
        return self.root.full_name if isinstance(self.root, Named) else self.root.kind

    def formatted(self, style: str) -> str:
        """`resolved` has the referenced types inline."""
        return write_json(canonical_json(self.root, set())) if style == "resolved" else self.text


def parse_avro(text: str, references: Mapping[str, str]) -> AvroSchema:
    names: dict[str, NamedType] = {}
    heights: dict[str, int] = {}
    for name, referenced in references.items():
        try:
            Parser(names, heights).parse(_read(referenced))
        except InvalidSchema as error:
            raise InvalidSchema(f"reference {name}: {error}") from None
    known = frozenset(names)
    root = Parser(names, heights).parse(_read(text))
    return AvroSchema(write_json(canonical_json(root, set(known))), dict(references), root, known)


def _read(text: str) -> Json:
    bare = text.strip()
    if _BARE_NAME.fullmatch(bare):  # without quotes, as Avro's own parsers take it
        return bare
    return read_json(text, "Avro schema")
