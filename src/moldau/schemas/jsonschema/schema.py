"""A JSON Schema as registries handle it: canonical text, normal form, references by `$ref`."""

from collections.abc import Mapping
from dataclasses import dataclass

from moldau.schemas.json_text import Json, read_json, write_json, write_sorted_json
from moldau.schemas.jsonschema.documents import Documents
from moldau.schemas.jsonschema.drafts import Draft, draft_of
from moldau.schemas.jsonschema.validators import compile_validator
from moldau.schemas.schema import InvalidSchema, SchemaType


@dataclass(frozen=True, slots=True, eq=False)
class JsonSchema:
    """A parsed JSON Schema."""

    text: str
    references: Mapping[str, str]
    documents: Documents

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.JSON

    @property
    def draft(self) -> Draft:
        return draft_of(self.documents.root)

    @property
    def normalized(self) -> str:
        return write_sorted_json(self.documents.root)

    @property
    def full_name(self) -> str | None:
        root = self.documents.root
        title = root.get("title") if isinstance(root, dict) else None
        return title if isinstance(title, str) else None

    def formatted(self, style: str) -> str:
        return self.text


def parse_json_schema(text: str, references: Mapping[str, str]) -> JsonSchema:
    root = read_json(text, "JSON Schema")
    referenced: dict[str, Json] = {
        name: read_json(document, f"reference {name}") for name, document in references.items()
    }
    if not isinstance(root, dict | bool):
        raise InvalidSchema("#: a JSON Schema is an object or a boolean")
    documents = Documents(root, referenced)
    documents.check()
    compile_validator(documents, referenced)
    return JsonSchema(write_json(root), dict(references), documents)
