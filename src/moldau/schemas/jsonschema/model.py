"""A JSON Schema as its comparison sees it: each subschema is of one kind, or a combination of several.

`{"type": "string", "enum": [...]}` is the combination allOf of a string and an enum, `{"type": ["string", "null"]}` is
anyOf of a string and a null, so that every keyword is compared with its like. Subschemas are translated when needed.
"""

from dataclasses import dataclass, field
from enum import Enum

from moldau.schemas.json_text import Json, JsonObject, write_sorted_json
from moldau.schemas.jsonschema.documents import Documents
from moldau.schemas.jsonschema.drafts import Draft, draft_of

SubSchema = JsonObject | bool

_STRING = ("minLength", "maxLength", "pattern")
_NUMBER = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_ARRAY = (
    "items", "prefixItems", "additionalItems", "unevaluatedItems", "contains", "minItems", "maxItems", "uniqueItems",
    "minContains", "maxContains",
)  # fmt: skip
_OBJECT = (
    "properties", "patternProperties", "additionalProperties", "unevaluatedProperties", "required", "dependencies",
    "dependentRequired", "dependentSchemas", "propertyNames", "minProperties", "maxProperties",
)  # fmt: skip
_MAX_HOPS = 100  # from a $ref to a $ref


class Kind(Enum):
    """What a subschema is about. The values are for messages."""

    ANYTHING = "anything"
    NOTHING = "nothing"
    STRING = "string"
    NUMBER = "number"
    BOOLEAN = "boolean"
    NULL = "null"
    ARRAY = "array"
    OBJECT = "object"
    ENUM = "enum"
    CONST = "const"
    NOT = "not"
    CONDITIONAL = "if/then/else"
    COMBINED = "a combination"


_TYPES = {
    "string": Kind.STRING,
    "number": Kind.NUMBER,
    "integer": Kind.NUMBER,
    "boolean": Kind.BOOLEAN,
    "null": Kind.NULL,
    "array": Kind.ARRAY,
    "object": Kind.OBJECT,
}
_SNIFFED = ((Kind.STRING, _STRING), (Kind.NUMBER, _NUMBER), (Kind.ARRAY, _ARRAY), (Kind.OBJECT, _OBJECT))


@dataclass(slots=True, eq=False)
class Node:
    """A subschema of one kind, with all keywords of its source."""

    kind: Kind
    side: "Side"
    source: JsonObject
    criterion: str = ""  # allOf, anyOf or oneOf of a combination
    parts: "tuple[Node | SubSchema, ...]" = ()  # of a combination
    generated: bool = False  # a combination that no keyword names
    integer: bool = False  # a number that is an integer
    _identity: tuple[str, str] | None = None

    @property
    def name(self) -> str:
        if self.kind is Kind.COMBINED:
            return f"{self.criterion} of {len(self.parts)}"
        return "integer" if self.integer else self.kind.value

    @property
    def members(self) -> "tuple[Node, ...]":
        """The parts of a combination. Translated only now: a schema may be a part of itself."""
        return tuple(part if isinstance(part, Node) else self.side.node(part) for part in self.parts)

    @property
    def identity(self) -> tuple[str, str]:
        """Equal for nodes of one schema that say the same."""
        if self._identity is None:
            self._identity = (self.name, write_sorted_json(self.source))
        return self._identity

    def sub(self, keyword: str) -> "Node | None":
        """The subschema of a keyword, if it has one."""
        value = self.source.get(keyword)
        return self.side.node(value) if isinstance(value, dict | bool) else None

    def subs(self, keyword: str) -> "dict[str, Node]":
        """The subschemas of a keyword by name."""
        value = self.source.get(keyword)
        if not isinstance(value, dict):
            return {}
        return {name: self.side.node(item) for name, item in value.items() if isinstance(item, dict | bool)}

    def number(self, keyword: str) -> int | float | None:
        value = self.source.get(keyword)
        return value if isinstance(value, int | float) and not isinstance(value, bool) else None


@dataclass(slots=True, eq=False)
class Side:
    """One of the two schemas of a comparison."""

    documents: Documents
    _nodes: dict[int, Node] = field(default_factory=dict)
    draft: Draft = Draft.DRAFT_7

    def __post_init__(self) -> None:
        self.draft = draft_of(self.documents.root)

    @property
    def modern(self) -> bool:
        """Whether keywords beside `$ref` count, and unevaluated properties and items are known."""
        return self.draft in (Draft.DRAFT_2019_09, Draft.DRAFT_2020_12)

    def root(self) -> Node:
        root = self.documents.root
        return self.node(root if isinstance(root, dict | bool) else True)

    def node(self, schema: SubSchema) -> Node:
        known = self._nodes.get(id(schema))
        if known is None:
            known = self._nodes[id(schema)] = self._translate(schema)
        return known

    def _translate(self, schema: SubSchema) -> Node:
        if isinstance(schema, bool):
            return Node(Kind.ANYTHING if schema else Kind.NOTHING, self, {})
        target = self._target(schema)
        parts: list[Node | SubSchema] = [*self._keywords(schema)]
        if target is not None:
            if not parts or not self.modern:
                return self.node(target)
            parts.insert(0, target)
        if not parts:
            return Node(Kind.ANYTHING, self, schema)
        if len(parts) == 1 and isinstance(parts[0], Node):
            return parts[0]
        return Node(Kind.COMBINED, self, schema, "allOf", tuple(parts), generated=True)

    def _target(self, schema: JsonObject) -> SubSchema | None:
        """What `$ref` leads to, by way of subschemas that are nothing but a `$ref` themselves."""
        found: SubSchema | None = None
        for _ in range(_MAX_HOPS):
            reference = schema.get("$ref")
            if not isinstance(reference, str) or (found is not None and self.modern and self._keywords(schema)):
                return found
            found = self.documents.resolve(schema, reference)
            if not isinstance(found, dict):
                return found
            schema = found
        return True  # it leads to itself and says nothing

    def _keywords(self, schema: JsonObject) -> list[Node]:
        parts = []
        if isinstance(schema.get("enum"), list):
            parts.append(Node(Kind.ENUM, self, schema))
        if "const" in schema and self.draft is not Draft.DRAFT_4:
            parts.append(Node(Kind.CONST, self, schema))
        if isinstance(schema.get("not"), dict | bool):
            parts.append(Node(Kind.NOT, self, schema))
        if "if" in schema and ("then" in schema or "else" in schema):
            parts.append(Node(Kind.CONDITIONAL, self, schema))
        for criterion in ("allOf", "anyOf", "oneOf"):
            subs = schema.get(criterion)
            if isinstance(subs, list):
                members = tuple(sub for sub in subs if isinstance(sub, dict | bool))
                parts.append(Node(Kind.COMBINED, self, schema, criterion, members))
        return parts + self._typed(schema)

    def _typed(self, schema: JsonObject) -> list[Node]:
        types = schema.get("type")
        if isinstance(types, str):
            return [self._of_type(types, schema)]
        if isinstance(types, list):
            members = tuple(self._of_type(name, schema) for name in types if isinstance(name, str))
            return [Node(Kind.COMBINED, self, schema, "anyOf", members, generated=True)]
        return [Node(kind, self, schema) for kind, keywords in _SNIFFED if any(word in schema for word in keywords)]

    def _of_type(self, name: str, schema: JsonObject) -> Node:
        return Node(_TYPES.get(name, Kind.ANYTHING), self, schema, integer=name == "integer")


def json_key(value: Json) -> str:
    """Equal for values that are equal in JSON: 1 and 1.0 are, 1 and true are not."""
    return write_sorted_json(_whole(value))


def _whole(value: Json) -> Json:
    """The value with floats that are whole as integers."""
    if isinstance(value, list):
        return [_whole(item) for item in value]
    if isinstance(value, dict):
        return {key: _whole(item) for key, item in value.items()}
    return int(value) if isinstance(value, float) and value.is_integer() else value
