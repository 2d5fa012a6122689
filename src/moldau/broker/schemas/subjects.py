"""Subjects: what the records of `_schemas` say, in the format of Confluent's registry. Does no I/O.

Only what brokers need: schemas by id, and the versions of subjects that are not deleted. Modes and compatibility are
the registry's. Ids belong to a context, which a subject names in front: `:.context:subject`.
"""

import json
import logging
from typing import Any, Final, NamedTuple

from moldau.replication.record_rules import SchemaText

logger: Final = logging.getLogger("moldau.broker")

DEFAULT_CONTEXT: Final = ""
MAX_REFERENCES: Final = 1_000  # of one schema, with theirs


class Reference(NamedTuple):
    name: str
    subject: str
    version: int


class StoredSchema(NamedTuple):
    id: int
    type: str
    text: str
    references: tuple[Reference, ...]
    guid: str  # hexadecimal; "" where the registry did not write it


class Version(NamedTuple):
    subject: str
    version: int
    schema: StoredSchema
    deleted: bool


class Removed(NamedTuple):
    """A version was removed for good, or all versions up to one were deleted."""

    subject: str
    version: int
    up_to: bool


def read(key: bytes | None, value: bytes | None) -> Version | Removed | None:
    """The change that a record stands for; None if it is nothing that brokers need."""
    if key is None:
        return None
    try:
        named = json.loads(key)
        told = None if value is None else json.loads(value)
        return _read(named, told)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        logger.warning("A record of the schemas topic cannot be read, and is left out: %r", problem)
        return None


def _read(key: dict[str, Any], value: dict[str, Any] | None) -> Version | Removed | None:
    kind = key["keytype"]
    if kind == "DELETE_SUBJECT" and value is not None:
        return Removed(str(value["subject"]), int(value["version"]), up_to=True)
    if kind != "SCHEMA":
        return None
    subject, version = str(key["subject"]), int(key["version"])
    if value is None:
        return Removed(subject, version, up_to=False)
    references = tuple(
        Reference(str(each["name"]), str(each["subject"]), int(each["version"]))
        for each in value.get("references") or ()
    )
    guid = str(value.get("guid") or "").replace("-", "").lower()
    schema = StoredSchema(
        int(value["id"]), str(value.get("schemaType") or "AVRO"), str(value["schema"]), references, guid
    )
    return Version(subject, version, schema, bool(value.get("deleted")))


class Subjects:
    """The state after all records so far. `generation` grows with every change."""

    def __init__(self) -> None:
        self.generation = 0
        self._versions: dict[str, dict[int, Version]] = {}

    def apply(self, change: Version | Removed) -> None:
        self.generation += 1
        if isinstance(change, Version):
            self._versions.setdefault(change.subject, {})[change.version] = change
            return
        versions = self._versions.get(change.subject)
        if versions is None:
            return
        if change.up_to:
            for version in [number for number in versions if number <= change.version]:
                versions[version] = versions[version]._replace(deleted=True)
        else:
            versions.pop(change.version, None)
            if not versions:
                del self._versions[change.subject]

    def versions(self, subject: str) -> dict[int, StoredSchema]:
        """The versions of a subject that are not deleted."""
        found = self._versions.get(subject, {})
        return {number: each.schema for number, each in sorted(found.items()) if not each.deleted}

    def subjects(self, context: str = DEFAULT_CONTEXT) -> list[str]:
        return [subject for subject in self._versions if context_of(subject) == context]

    def text(self, subject: str, schema: StoredSchema) -> SchemaText | str:
        """A schema with all that it refers to, deleted versions too; or which reference is missing."""
        texts: dict[str, str] = {}
        missing = self._collect(schema, context_of(subject), texts, [])
        return missing or SchemaText(schema.type, schema.text, tuple(texts.items()))

    def _collect(self, schema: StoredSchema, context: str, texts: dict[str, str], path: list[Reference]) -> str:
        """Add the references of a schema, each after its own. Returns what is wrong."""
        for reference in schema.references:
            if reference.name in texts:
                continue
            if reference in path or len(texts) >= MAX_REFERENCES:
                return f"its references to {reference.subject} are endless"
            subject = reference.subject
            if context and not subject.startswith(":."):
                subject = f":{context}:{subject}"
            found = self._versions.get(subject, {}).get(reference.version)
            if found is None:
                return f"it refers to version {reference.version} of {reference.subject}, which is unknown"
            wrong = self._collect(found.schema, context_of(subject), texts, [*path, reference])
            if wrong:
                return wrong
            texts[reference.name] = found.schema.text
        return ""


def context_of(subject: str) -> str:
    """The context that a subject names: `.context` of `:.context:subject`, "" for the default one."""
    if not subject.startswith(":."):
        return DEFAULT_CONTEXT
    context = subject[1:].partition(":")[0]
    return DEFAULT_CONTEXT if context == "." else context
