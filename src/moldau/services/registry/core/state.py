"""RegistryState: what the records of `_schemas` say, with the indexes that look-ups need. Only `apply` changes it."""

from collections.abc import Iterator
from typing import Final

from moldau.schemas import Reference
from moldau.services.registry.core.names import DEFAULT_CONTEXT, context_of, has_prefix, normalize, within
from moldau.services.registry.core.records import (
    ClearSubjectKey,
    ConfigKey,
    Content,
    ContextKey,
    DeleteSubjectKey,
    JsonObject,
    ModeKey,
    NoopKey,
    Record,
    SchemaKey,
    StoredSchema,
)

NO_VERSIONS: Final[dict[int, StoredSchema]] = {}


class RegistryState:
    def __init__(self) -> None:
        self.configs: dict[str | None, JsonObject] = {}
        self.modes: dict[str | None, str] = {}
        self.contexts: set[str] = set()
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._by_id: dict[tuple[str, int], dict[SchemaKey, None]] = {}
        self._by_digest: dict[bytes, dict[SchemaKey, None]] = {}
        self._referrers: dict[SchemaKey, dict[SchemaKey, None]] = {}
        self._highest_id: dict[str, int] = {}

    # ── changing ────────────────────────────────────────────────────────────────────────────────────────────────────

    def apply(self, record: Record) -> None:
        """Take over one record: the same for one just written and for one of years ago."""
        match record.key:
            case SchemaKey() as key:
                self._remove(key)
                if isinstance(record.value, StoredSchema):
                    self._put(record.value)
            case ConfigKey(subject):
                self._apply_config(subject, record.value)
            case ModeKey(subject):
                mode = record.value.get("mode") if isinstance(record.value, dict) else None
                if isinstance(mode, str):
                    self.modes[subject] = mode
                else:
                    self.modes.pop(subject, None)
            case DeleteSubjectKey(subject):
                last = record.value.get("version") if isinstance(record.value, dict) else None
                if isinstance(last, int):
                    self._delete_until(subject, last)
            case ClearSubjectKey(subject):
                if record.value is not None:
                    self._clear(subject)
            case ContextKey(context):
                if record.value is None:
                    self.contexts.discard(context)
                else:
                    self.contexts.add(context)
            case NoopKey():
                pass

    def _apply_config(self, subject: str | None, value: StoredSchema | JsonObject | None) -> None:
        if isinstance(value, dict):
            self.configs[subject] = {name: each for name, each in value.items() if name != "subject"}
        else:
            self.configs.pop(subject, None)

    def _put(self, stored: StoredSchema) -> None:
        key, context = stored.key, context_of(stored.subject)
        self._subjects.setdefault(stored.subject, {})[stored.version] = stored
        self._by_id.setdefault((context, stored.id), {})[key] = None
        self._by_digest.setdefault(stored.md5, {})[key] = None
        self._highest_id[context] = max(stored.id, self._highest_id.get(context, 0))
        for target in targets_of(stored):
            self._referrers.setdefault(target, {})[key] = None

    def _remove(self, key: SchemaKey) -> None:
        stored = self._subjects.get(key.subject, NO_VERSIONS).pop(key.version, None)
        if stored is None:
            return
        if not self._subjects[key.subject]:
            del self._subjects[key.subject]
        _forget(self._by_id, (context_of(key.subject), stored.id), key)
        _forget(self._by_digest, stored.md5, key)
        for target in targets_of(stored):
            _forget(self._referrers, target, key)

    def _delete_until(self, subject: str, last: int) -> None:
        for version, stored in list(self._subjects.get(subject, NO_VERSIONS).items()):
            if version <= last and not stored.deleted:
                deleted = StoredSchema(subject, version, stored.id, stored.content, stored.md5, deleted=True)
                self._subjects[subject][version] = deleted

    def _clear(self, subject: str | None) -> None:
        """Forget the deleted schemas of a subject, or of all subjects of a context."""
        for name in [name for name in self._subjects if has_prefix(name, subject or "")]:
            for stored in [each for each in self._subjects[name].values() if each.deleted]:
                self._remove(stored.key)

    # ── looking up ──────────────────────────────────────────────────────────────────────────────────────────────────

    def versions(self, subject: str, *, deleted: bool = False) -> list[StoredSchema]:
        """The versions of a subject, the oldest first; with the soft-deleted ones if asked."""
        found = self._subjects.get(subject, NO_VERSIONS)
        return [found[number] for number in sorted(found) if deleted or not found[number].deleted]

    def version(self, subject: str, number: int) -> StoredSchema | None:
        """One version, soft-deleted or not."""
        return self._subjects.get(subject, NO_VERSIONS).get(number)

    def latest(self, subject: str) -> StoredSchema | None:
        found = self.versions(subject)
        return found[-1] if found else None

    def subjects(self) -> list[str]:
        """All subjects with any version, sorted."""
        return sorted(self._subjects)

    def next_version(self, subject: str) -> int:
        return max(self._subjects.get(subject, NO_VERSIONS), default=0) + 1

    def with_id(self, context: str, schema_id: int) -> list[StoredSchema]:
        """The versions with this id in a context, the first registered first."""
        return [self._at(key) for key in self._by_id.get((context, schema_id), ())]

    def with_digest(self, digest: bytes) -> list[StoredSchema]:
        """The versions with this content, in all contexts."""
        return [self._at(key) for key in self._by_digest.get(digest, ())]

    def id_of(self, context: str, content: Content) -> int | None:
        """The id that this content has in a context."""
        same = (each for each in self.with_digest(content.digest()) if context_of(each.subject) == context)
        found = next(same, None)
        return None if found is None else found.id

    def next_id(self, context: str) -> int:
        return self._highest_id.get(context, 0) + 1

    def highest_id(self, context: str) -> int:
        return self._highest_id.get(context, 0)

    def referrers(self, key: SchemaKey, *, deleted: bool = False) -> list[StoredSchema]:
        """The versions whose schema refers to this one."""
        found = [self._at(each) for each in self._referrers.get(key, ())]
        return [each for each in found if deleted or not each.deleted]

    def known_contexts(self) -> list[str]:
        """All contexts, the default one first."""
        named = self.contexts | {context_of(subject) for subject in self._subjects}
        return [DEFAULT_CONTEXT, *sorted(named - {DEFAULT_CONTEXT})]

    def _at(self, key: SchemaKey) -> StoredSchema:
        return self._subjects[key.subject][key.version]


def targets_of(stored: StoredSchema) -> list[SchemaKey]:
    return [target_of(reference, stored.subject) for reference in stored.content.references]


def target_of(reference: Reference, parent: str) -> SchemaKey:
    """The version that a reference means: a subject without a context is in that of the schema that refers to it."""
    return SchemaKey(normalize(within(reference.subject, parent)), reference.version)


def all_schemas(state: RegistryState, *, deleted: bool) -> Iterator[StoredSchema]:
    for subject in state.subjects():
        yield from state.versions(subject, deleted=deleted)


def _forget(index: dict, at: object, key: SchemaKey) -> None:  # type: ignore[type-arg]
    keys = index[at]
    keys.pop(key, None)
    if not keys:
        del index[at]
