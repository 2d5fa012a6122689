"""Tags in schemas: `confluent:tags` of records and fields, added and removed in a new version.

Avro and JSON Schema only: in Protobuf they are options of a file that Confluent provides.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from moldau.schemas import SchemaType
from moldau.services.registry.core.decision import Decision
from moldau.services.registry.core.errors import invalid_schema
from moldau.services.registry.core.parsing import SchemaParser
from moldau.services.registry.core.records import Json, JsonObject, StoredSchema
from moldau.services.registry.core.register import register
from moldau.services.registry.core.requests import (
    ANY_VERSION,
    SchemaRequest,
    object_of,
    read_number,
    read_object,
    read_rule_set,
)
from moldau.services.registry.core.state import RegistryState

TAGS: Final = "confluent:tags"


def modify_tags(state: RegistryState, parser: SchemaParser, stored: StoredSchema, body: Json) -> Decision:
    """Register the schema of a version again with other tags, and with the metadata and rules given."""
    fields = object_of(body)
    content = stored.content
    text = with_tags(content.schema_type, content.schema, fields.get("tagsToAdd"), fields.get("tagsToRemove"))
    metadata, rule_set = read_object(fields, "metadata"), read_rule_set(fields, "ruleSet")
    changed = replace(
        content,
        schema=text,
        metadata=content.metadata if metadata is None else metadata,
        rule_set=content.rule_set if rule_set is None else rule_set,
    )
    request = SchemaRequest(changed, read_number(fields, "newVersion") or ANY_VERSION)
    return register(state, parser, stored.subject, request, normalize=False, force=True)


def with_tags(schema_type: str, text: str, added: Json, removed: Json) -> str:
    """The schema's text with tags added, then removed."""
    changes = [*_changes(added, adds=True), *_changes(removed, adds=False)]
    if not changes:
        return text
    if schema_type not in (SchemaType.AVRO, SchemaType.JSON):
        raise invalid_schema(f"tags in {schema_type} schemas are not supported; edit the text and register it")
    document: Json = json.loads(text)
    entities = dict(avro_entities(document) if schema_type == SchemaType.AVRO else json_entities(document, "object"))
    for path, tags, adds in changes:
        entity = entities.get(path)
        if entity is None:
            known = ", ".join(sorted(entities)) or "none"
            raise invalid_schema(f"the schema has no entity '{path}' to tag; it has: {known}")
        before = entity.get(TAGS)
        kept = [each for each in (before if isinstance(before, list) else []) if each not in tags]
        entity[TAGS] = [*kept, *tags] if adds else kept
        if not entity[TAGS]:
            del entity[TAGS]
    return json.dumps(document, ensure_ascii=False, separators=(",", ":"))


def _changes(value: Json, *, adds: bool) -> Iterator[tuple[str, list[Json], bool]]:
    """Path, tags, and whether they are added, of each entry of a request."""
    if not isinstance(value, list | None):
        raise invalid_schema("tags are no list")
    for each in value or ():
        entity = each.get("schemaEntity") if isinstance(each, dict) else None
        path = entity.get("entityPath") if isinstance(entity, dict) else None
        tags = each.get("tags") if isinstance(each, dict) else None
        if not isinstance(path, str) or not isinstance(tags, list) or not all(isinstance(tag, str) for tag in tags):
            raise invalid_schema("each entry needs schemaEntity with entityPath, and tags")
        yield path, tags, adds


def avro_entities(value: Json, namespace: str = "") -> Iterator[tuple[str, JsonObject]]:
    """Records by full name, and fields as `full.name.field`."""
    if isinstance(value, list):
        for each in value:
            yield from avro_entities(each, namespace)
    if not isinstance(value, dict):
        return
    kind = value.get("type")
    if kind in ("record", "error"):
        name = str(value.get("name"))
        given = value.get("namespace")
        space = given if isinstance(given, str) else name.rpartition(".")[0] or namespace
        full = name if "." in name or not space else f"{space}.{name}"
        yield full, value
        fields = value.get("fields")
        for field in fields if isinstance(fields, list) else ():
            if isinstance(field, dict):
                yield f"{full}.{field.get('name')}", field
                yield from avro_entities(field.get("type"), space)
        return
    for inner in (kind, value.get("items"), value.get("values")):
        if isinstance(inner, dict | list):
            yield from avro_entities(inner, namespace)


def json_entities(value: Json, path: str) -> Iterator[tuple[str, JsonObject]]:
    """The object as `object`, its properties as `object.name`, and theirs as `object.name.object.inner`."""
    if not isinstance(value, dict):
        return
    yield path, value
    properties = value.get("properties")
    for name, inner in properties.items() if isinstance(properties, dict) else ():
        if isinstance(inner, dict):
            yield f"{path}.{name}", inner
            if isinstance(inner.get("properties"), dict):
                yield from json_entities(inner, f"{path}.{name}.object")
