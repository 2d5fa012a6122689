"""Records of `_schemas`, in the format of Confluent's registry, so that each can take over from the other.

A key names its kind: SCHEMA, CONFIG, MODE, DELETE_SUBJECT, CLEAR_SUBJECT, CONTEXT, NOOP. Kinds that this registry does
not know are kept out of its state and stay in the topic.
"""

import base64
import binascii
import hashlib
import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from moldau.schemas import Reference, SchemaType

Json: TypeAlias = bool | int | float | str | list["Json"] | dict[str, "Json"] | None
JsonObject: TypeAlias = dict[str, Json]

SCHEMA_MAGIC: Final = 1
OTHER_MAGIC: Final = 0
TENANT: Final = "default"
AVRO: Final = str(SchemaType.AVRO)


@dataclass(frozen=True, slots=True)
class SchemaKey:
    subject: str
    version: int


@dataclass(frozen=True, slots=True)
class ConfigKey:
    subject: str | None


@dataclass(frozen=True, slots=True)
class ModeKey:
    subject: str | None


@dataclass(frozen=True, slots=True)
class DeleteSubjectKey:
    subject: str


@dataclass(frozen=True, slots=True)
class ClearSubjectKey:
    subject: str | None


@dataclass(frozen=True, slots=True)
class ContextKey:
    context: str


@dataclass(frozen=True, slots=True)
class NoopKey:
    pass


Key: TypeAlias = SchemaKey | ConfigKey | ModeKey | DeleteSubjectKey | ClearSubjectKey | ContextKey | NoopKey


@dataclass(frozen=True, slots=True)
class Content:
    """What makes two schemas the same: they share an id. Metadata and rule set are JSON as the client sent it."""

    schema_type: str
    schema: str
    references: tuple[Reference, ...] = ()
    metadata: JsonObject | None = field(default=None, hash=False)
    rule_set: JsonObject | None = field(default=None, hash=False)

    def digest(self) -> bytes:
        """MD5 as Confluent's registry computes it: the identity of the content, not a protection."""
        digest = hashlib.md5(usedforsecurity=False)
        digest.update(self.schema.encode(errors="surrogatepass"))
        for reference in self.references:
            digest.update(reference.name.encode() + reference.subject.encode() + reference.version.to_bytes(4, "big"))
        if self.metadata is not None:
            digest.update(b"\1" + _metadata_bytes(self.metadata))
        if self.rule_set is not None:
            digest.update(b"\1" + _rule_set_bytes(self.rule_set))
        return digest.digest()


@dataclass(frozen=True, slots=True)
class StoredSchema:
    """One version of a subject."""

    subject: str
    version: int
    id: int
    content: Content
    md5: bytes
    deleted: bool = False

    @property
    def guid(self) -> str:
        return str(uuid.UUID(bytes=self.md5))

    @property
    def key(self) -> SchemaKey:
        return SchemaKey(self.subject, self.version)


@dataclass(frozen=True, slots=True)
class Record:
    """A key and its value; None deletes it."""

    key: Key
    value: StoredSchema | JsonObject | None


class UnknownRecord(ValueError):
    """A record of another kind, or one that cannot be read. Others may have use for it."""


# ── keys ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_key(key: Key) -> bytes:
    match key:
        case SchemaKey(subject, version):
            found: JsonObject = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": SCHEMA_MAGIC}
        case ConfigKey(subject):
            found = {"keytype": "CONFIG", "subject": subject, "magic": OTHER_MAGIC}
        case ModeKey(subject):
            found = {"keytype": "MODE", "subject": subject, "magic": OTHER_MAGIC}
        case DeleteSubjectKey(subject):
            found = {"keytype": "DELETE_SUBJECT", "subject": subject, "magic": OTHER_MAGIC}
        case ClearSubjectKey(subject):
            found = {"keytype": "CLEAR_SUBJECT", "subject": subject, "magic": OTHER_MAGIC}
        case ContextKey(context):
            found = {"keytype": "CONTEXT", "tenant": TENANT, "context": context, "magic": OTHER_MAGIC}
        case NoopKey():
            found = {"keytype": "NOOP", "magic": OTHER_MAGIC}
    return to_json({name: value for name, value in found.items() if value is not None})


def read_key(data: bytes) -> Key:
    found = _read_object(data, "key")
    kind, subject = found.get("keytype"), found.get("subject")
    if not isinstance(subject, str | None):
        raise UnknownRecord(f"the subject of a {kind} key is no text")
    if kind == "CONFIG":
        return ConfigKey(subject or None)
    if kind == "MODE":
        return ModeKey(subject or None)
    if kind == "CLEAR_SUBJECT":
        return ClearSubjectKey(subject or None)
    if kind == "NOOP":
        return NoopKey()
    if kind == "CONTEXT":
        return ContextKey(_text(found, "context"))
    if kind == "SCHEMA":
        return SchemaKey(_text(found, "subject"), _number(found, "version"))
    if kind == "DELETE_SUBJECT":
        return DeleteSubjectKey(_text(found, "subject"))
    raise UnknownRecord(f"a key of kind {kind!r}")


# ── values ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def write_value(value: StoredSchema | JsonObject | None) -> bytes | None:
    if value is None:
        return None
    return to_json(_schema_json(value) if isinstance(value, StoredSchema) else value)


def _schema_json(stored: StoredSchema) -> JsonObject:
    content = stored.content
    found: JsonObject = {"subject": stored.subject, "version": stored.version, "id": stored.id}
    found["md5"] = base64.b64encode(stored.md5).decode()
    if content.schema_type != AVRO:
        found["schemaType"] = content.schema_type
    if content.references:
        found["references"] = references_json(content.references)
    if content.metadata is not None:
        found["metadata"] = content.metadata
    if content.rule_set is not None:
        found["ruleSet"] = content.rule_set
    found["schema"] = content.schema
    found["deleted"] = stored.deleted
    return found


def read_record(key_data: bytes, value_data: bytes | None) -> Record:
    """The record, or UnknownRecord."""
    key = read_key(key_data)
    if value_data is None:
        return Record(key, None)
    value = _read_object(value_data, "value")
    return Record(key, _read_schema(key, value) if isinstance(key, SchemaKey) else value)


def _read_schema(key: SchemaKey, value: JsonObject) -> StoredSchema:
    metadata, rule_set = value.get("metadata"), value.get("ruleSet")
    content = Content(
        str(value.get("schemaType") or AVRO),
        _text(value, "schema"),
        read_references(value.get("references")),
        metadata if isinstance(metadata, dict) else None,
        rule_set if isinstance(rule_set, dict) else None,
    )
    deleted = value.get("deleted") is True
    return StoredSchema(
        key.subject, key.version, _number(value, "id"), content, _md5(value) or content.digest(), deleted
    )


def _md5(value: Mapping[str, Json]) -> bytes | None:
    text = value.get("md5")
    if not isinstance(text, str):
        return None
    try:
        found = base64.b64decode(text, validate=True)
    except binascii.Error:
        return None
    return found if len(found) == hashlib.md5(usedforsecurity=False).digest_size else None


def references_json(references: Iterable[Reference]) -> list[Json]:
    return [{"name": each.name, "subject": each.subject, "version": each.version} for each in references]


def read_references(value: Json) -> tuple[Reference, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise UnknownRecord("references are no list")
    found = []
    for each in value:
        if not isinstance(each, dict):
            raise UnknownRecord("a reference is no object")
        found.append(Reference(_text(each, "name"), _text(each, "subject"), _number(each, "version")))
    return tuple(found)


def to_json(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="surrogatepass")


def _read_object(data: bytes, what: str) -> JsonObject:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as bad:
        raise UnknownRecord(f"the {what} is no JSON: {bad}") from None
    if not isinstance(found, dict):
        raise UnknownRecord(f"the {what} is no JSON object")
    return found


def _text(value: Mapping[str, Json], name: str) -> str:
    found = value.get(name)
    if not isinstance(found, str):
        raise UnknownRecord(f"{name} is missing or no text")
    return found


def _number(value: Mapping[str, Json], name: str) -> int:
    found = value.get(name)
    if not isinstance(found, int) or isinstance(found, bool) or not -1 <= found < 2**31:
        raise UnknownRecord(f"{name} is missing or no 32-bit number")
    return found


# ── the digest of metadata and rules: texts one after the other, maps by key ────────────────────────────────────────


def _metadata_bytes(metadata: JsonObject) -> bytes:
    return (
        _map_bytes(metadata.get("tags"))
        + _map_bytes(metadata.get("properties"))
        + _set_bytes(metadata.get("sensitive"))
    )


def _rule_set_bytes(rule_set: JsonObject) -> bytes:
    kinds = (rule_set.get("migrationRules"), rule_set.get("domainRules"), rule_set.get("encodingRules"))
    rules = b"".join(_rule_bytes(rule) for kind in kinds for rule in (kind if isinstance(kind, list) else ()))
    return rules + _bytes(rule_set.get("enableAt"))


def _rule_bytes(rule: Json) -> bytes:
    if not isinstance(rule, dict):
        return b""
    found = b"".join(_bytes(rule.get(name)) for name in ("name", "doc", "kind", "mode", "type"))
    found += _set_bytes(rule.get("tags")) + _map_bytes(rule.get("params"))
    found += b"".join(_bytes(rule.get(name)) for name in ("expr", "onSuccess", "onFailure"))
    return found + (b"\1" if rule.get("disabled") is True else b"")


def _map_bytes(value: Json) -> bytes:
    if not isinstance(value, dict):
        return b""
    return b"".join(key.encode() + _set_bytes(value[key]) + _bytes(value[key]) for key in sorted(value))


def _set_bytes(value: Json) -> bytes:
    return b"".join(_bytes(each) for each in sorted(map(str, value))) if isinstance(value, list) else b""


def _bytes(value: Json) -> bytes:
    return value.encode(errors="surrogatepass") if isinstance(value, str) else b""
