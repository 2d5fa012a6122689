"""Parsing schemas of the registry: references are found in its state, and parsed schemas are kept for the next use."""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from moldau.schemas import InvalidSchema, ParsedSchema, Reference, SchemaType, parse
from moldau.services.registry.core.errors import invalid_schema
from moldau.services.registry.core.names import within
from moldau.services.registry.core.records import Content, SchemaKey
from moldau.services.registry.core.state import RegistryState, target_of

KEPT_SCHEMAS: Final = 1_000
KEPT_BYTES: Final = 32 * 1024 * 1024  # of their texts; a parsed schema takes several times that
MAX_REFERENCES: Final = 1_000  # transitively

CacheKey = tuple[str, str, tuple[tuple[str, str], ...]]


class SchemaParser:
    """Parses by content: a schema of the same text and references is parsed once while it is in use."""

    def __init__(self) -> None:
        self._kept: OrderedDict[CacheKey, ParsedSchema] = OrderedDict()
        self._bytes = 0

    def parse(self, state: RegistryState, subject: str, content: Content) -> ParsedSchema:
        """The schema, or RegistryError with INVALID_SCHEMA."""
        try:
            schema_type = SchemaType(content.schema_type)
        except ValueError:
            known = ", ".join(SchemaType)
            raise invalid_schema(f"{content.schema_type!r} is no schema type; types are {known}") from None
        texts = resolve(state, subject, content.references)
        key = (content.schema_type, content.schema, tuple(texts.items()))
        found = self._kept.get(key)
        if found is None:
            try:
                found = parse(schema_type, content.schema, texts)
            except InvalidSchema as problem:
                raise invalid_schema(str(problem)) from None
            self._keep(key, found)
        self._kept.move_to_end(key)
        return found

    def _keep(self, key: CacheKey, parsed: ParsedSchema) -> None:
        self._kept[key] = parsed
        self._bytes += _size(key)
        while len(self._kept) > 1 and (len(self._kept) > KEPT_SCHEMAS or self._bytes > KEPT_BYTES):
            oldest, _ = self._kept.popitem(last=False)
            self._bytes -= _size(oldest)


def _size(key: CacheKey) -> int:
    return len(key[1]) + sum(len(text) for _, text in key[2])


def resolve(state: RegistryState, subject: str, references: Sequence[Reference]) -> dict[str, str]:
    """The texts that a schema refers to, by name; a text comes after those that it needs itself."""
    texts: dict[str, str] = {}
    _resolve(state, subject, references, texts, frozenset())
    return texts


def _resolve(
    state: RegistryState,
    subject: str,
    references: Sequence[Reference],
    texts: dict[str, str],
    above: frozenset[SchemaKey],
) -> None:
    for reference in references:
        if not reference.name:
            raise invalid_schema("a reference has no name")
        if reference.name in texts:
            continue
        key = target_of(reference, subject)
        stored = state.latest(key.subject) if key.version == -1 else state.version(key.subject, key.version)
        if stored is None:
            where = f"version {reference.version} of subject '{within(reference.subject, subject)}'"
            raise invalid_schema(f"no schema reference found for '{reference.name}': there is no {where}")
        if stored.key in above:
            raise invalid_schema(f"the reference '{reference.name}' leads back to itself")
        _resolve(state, stored.subject, stored.content.references, texts, above | {stored.key})
        texts[reference.name] = stored.content.schema
        if len(texts) > MAX_REFERENCES:
            raise invalid_schema(f"more than {MAX_REFERENCES} schemas are referenced")
