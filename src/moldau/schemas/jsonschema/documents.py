"""The documents of a JSON Schema: itself and those it refers to, indexed by URI. Nothing is ever fetched."""

from collections.abc import Iterator, Mapping
from urllib.parse import unquote, urldefrag, urljoin

from moldau.schemas.json_text import Json, JsonObject
from moldau.schemas.jsonschema.drafts import Draft, draft_of
from moldau.schemas.schema import InvalidSchema

BASE_URI = "http://schema.invalid/"  # reserved: no such host can exist
MAX_PATTERNS = 100  # of one object: each property may be matched with each
_DATA = frozenset(("const", "default", "enum", "examples"))  # keywords whose values are no schemas
_BY_NAME = frozenset(  # keywords whose values are schemas by name
    ("properties", "patternProperties", "definitions", "$defs", "dependencies", "dependentSchemas")
)
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")


class Documents:
    """Subschemas by URI. Built once per schema."""

    def __init__(self, root: Json, references: Mapping[str, Json]) -> None:
        self.root = root
        self._referenced = references
        self._by_uri: dict[str, JsonObject | bool] = {}
        self._base_of: dict[int, str] = {}
        self._retrieved = BASE_URI
        self.uses: dict[str, str] = {}  # the absolute URI of each use of a reference, and its name
        self._index(root, BASE_URI)
        for name, document in references.items():
            self._index(document, _join(self.base_of(root), name))

    def base_of(self, schema: Json) -> str:
        """The URI against which references in a subschema are resolved."""
        return self._base_of.get(id(schema), BASE_URI)

    def check(self) -> None:
        """Raise InvalidSchema for a reference that leads nowhere, and for too many patterns."""
        for document in (self.root, *self._referenced.values()):
            for path, schema in _objects(document):
                patterns = schema.get("patternProperties")
                if isinstance(patterns, dict) and len(patterns) > MAX_PATTERNS:
                    raise InvalidSchema(f"{path}/patternProperties: {len(patterns)} patterns; at most {MAX_PATTERNS}")
                for keyword in _REFERENCES:
                    target = schema.get(keyword)
                    if isinstance(target, str) and self.resolve(schema, target) is None:
                        raise InvalidSchema(
                            f"{path}/{keyword}: {target} is not in the schema nor among its references; "
                            "remote schemas are not fetched"
                        )

    def resolve(self, schema: JsonObject, reference: str) -> JsonObject | bool | None:
        """The subschema that a reference in `schema` points at, or None."""
        uri, fragment = urldefrag(_join(self.base_of(schema), reference))
        document = self._by_uri.get(uri)
        if document is None:
            return None
        if not fragment:
            return document
        if not fragment.startswith("/"):
            return self._by_uri.get(f"{uri}#{fragment}")
        return _pointed(document, fragment)

    def _index(self, document: Json, base: str) -> None:
        draft = draft_of(document)
        self._retrieved = base  # the validator resolves references against this, whatever the id of the document
        if isinstance(document, bool):
            self._by_uri[base] = document
            return
        if not isinstance(document, dict):
            raise InvalidSchema("/: a JSON Schema is an object or a boolean")
        self._by_uri.setdefault(base, document)
        waiting: list[tuple[JsonObject, str]] = [(document, base)]
        while waiting:
            schema, base = waiting.pop()
            base = self._enter(schema, base, draft)
            waiting += [(inner, base) for _, inner in _children(schema)]

    def _enter(self, schema: JsonObject, base: str, draft: Draft) -> str:
        own = schema.get(draft.id_keyword)
        if isinstance(own, str):
            uri, fragment = urldefrag(_join(base, own))
            if fragment:  # an anchor, as drafts before 2019-09 write it
                self._by_uri.setdefault(f"{uri}#{fragment}", schema)
            else:
                base = uri
                self._by_uri.setdefault(uri, schema)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._by_uri.setdefault(f"{base}#{anchor}", schema)
        self._base_of[id(schema)] = base
        for keyword in _REFERENCES:
            target = schema.get(keyword)
            if isinstance(target, str):
                self._use(target, base)
        return base

    def _use(self, target: str, base: str) -> None:
        name = target.partition("#")[0]
        found = next((known for known in (name, name.removeprefix("./")) if known in self._referenced), None)
        if found is not None:
            document = self._referenced[found]
            for known_base in (base, self._retrieved):
                uri = _join(known_base, name)
                self.uses[uri] = found
                if isinstance(document, dict | bool):
                    self._by_uri.setdefault(uri, document)


def _join(base: str, reference: str) -> str:
    """As urljoin, which knows no fragments of URNs."""
    return urldefrag(base).url + reference if reference.startswith("#") else urljoin(base, reference)


def _children(schema: JsonObject) -> Iterator[tuple[str, JsonObject]]:
    """The subschemas directly inside a schema, each with its path from it. Unknown keywords may have some too."""
    for keyword, value in schema.items():
        if isinstance(value, dict):
            if keyword in _BY_NAME:
                for name, inner in value.items():
                    if isinstance(inner, dict):
                        yield f"/{keyword}/{name}", inner
            elif keyword not in _DATA:
                yield f"/{keyword}", value
        elif isinstance(value, list) and keyword not in _DATA:
            for index, inner in enumerate(value):
                if isinstance(inner, dict):
                    yield f"/{keyword}/{index}", inner


def _objects(document: Json) -> Iterator[tuple[str, JsonObject]]:
    """All subschemas of a document that are objects, with their paths."""
    waiting: list[tuple[str, JsonObject]] = [("#", document)] if isinstance(document, dict) else []
    while waiting:
        path, schema = waiting.pop()
        yield path, schema
        waiting += [(path + step, inner) for step, inner in _children(schema)]


def _pointed(document: Json, pointer: str) -> JsonObject | bool | None:
    value = document
    for step in unquote(pointer).split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
        else:
            return None
    return value if isinstance(value, dict | bool) else None
