"""Deleting subjects, versions and contexts: softly first, then permanently."""

from moldau.services.registry.core.decision import Decision, require_writable
from moldau.services.registry.core.errors import Code, RegistryError, subject_not_found, version_not_found
from moldau.services.registry.core.names import DEFAULT_CONTEXT, Subject, context_of, split
from moldau.services.registry.core.records import (
    ConfigKey,
    ContextKey,
    DeleteSubjectKey,
    Json,
    ModeKey,
    Record,
    SchemaKey,
    StoredSchema,
)
from moldau.services.registry.core.requests import LATEST
from moldau.services.registry.core.state import RegistryState


def delete_subject(state: RegistryState, subject: str, *, permanent: bool) -> Decision:
    """Answers with the versions deleted."""
    every = state.versions(subject, deleted=True)
    if not every:
        raise subject_not_found(subject)
    live = [each for each in every if not each.deleted]
    require_writable(state, subject)
    if not permanent and not live:
        message = f"Subject '{subject}' was soft deleted. Set permanent=true to delete it permanently."
        raise RegistryError(Code.SUBJECT_SOFT_DELETED, message)
    chosen = every if permanent else live
    for each in chosen:
        _require_unreferenced(state, each, deleted=permanent, besides=subject)
    if permanent and live:
        message = f"Subject '{subject}' was not deleted first before being permanently deleted. Delete it softly first."
        raise RegistryError(Code.SUBJECT_NOT_SOFT_DELETED, message)
    versions: list[Json] = [each.version for each in chosen]
    if not permanent:
        last = chosen[-1].version
        return Decision(versions, (Record(DeleteSubjectKey(subject), {"subject": subject, "version": last}),))
    gone = [Record(each.key, None) for each in reversed(chosen)]
    return Decision(versions, (*gone, *_without_settings(state, subject)))


def delete_version(state: RegistryState, subject: str, number: int, *, permanent: bool) -> Decision:
    """Answers with the version deleted."""
    stored = state.latest(subject) if number == LATEST else state.version(subject, number)
    if stored is None:
        raise version_not_found(number) if state.versions(subject, deleted=True) else subject_not_found(subject)
    require_writable(state, subject)
    name = f"Subject '{subject}' Version {stored.version}"
    if stored.deleted and not permanent:
        message = f"{name} was soft deleted. Set permanent=true to delete it permanently."
        raise RegistryError(Code.VERSION_SOFT_DELETED, message)
    _require_unreferenced(state, stored, deleted=permanent)
    if permanent and not stored.deleted:
        message = f"{name} was not deleted first before being permanently deleted. Delete it softly first."
        raise RegistryError(Code.VERSION_NOT_SOFT_DELETED, message)
    if not permanent:
        deleted = StoredSchema(subject, stored.version, stored.id, stored.content, stored.md5, deleted=True)
        return Decision(stored.version, (Record(stored.key, deleted),))
    last = len(state.versions(subject, deleted=True)) == 1
    return Decision(stored.version, (Record(stored.key, None), *(_without_settings(state, subject) if last else ())))


def delete_context(state: RegistryState, name: str) -> Decision:
    context = split(name).context if name.startswith(":") else name
    if context not in state.known_contexts():
        message = f"Context '{context}' not found. GET /contexts lists them."
        raise RegistryError(Code.SUBJECT_NOT_FOUND, message)
    if any(context_of(subject) == context for subject in state.subjects()):
        message = f"Context '{context}' has subjects. Delete them permanently first."
        raise RegistryError(Code.CONTEXT_NOT_EMPTY, message)
    if context == DEFAULT_CONTEXT:
        return Decision(None, status=204)
    settings = _without_settings(state, str(Subject(context, "")))
    return Decision(None, (Record(ContextKey(context), None), *settings), status=204)


def _without_settings(state: RegistryState, subject: str) -> tuple[Record, ...]:
    mode = (Record(ModeKey(subject), None),) if subject in state.modes else ()
    config = (Record(ConfigKey(subject), None),) if subject in state.configs else ()
    return (*mode, *config)


def _require_unreferenced(
    state: RegistryState, stored: StoredSchema, *, deleted: bool, besides: str | None = None
) -> None:
    found = [each for each in state.referrers(stored.key, deleted=deleted) if each.subject != besides]
    if found:
        raise reference_exists(stored.key, found[0])


def reference_exists(key: SchemaKey, referrer: StoredSchema) -> RegistryError:
    by = f"subject '{referrer.subject}' version {referrer.version}"
    message = f"One or more references exist to the schema of subject '{key.subject}' version {key.version}: {by}."
    return RegistryError(Code.REFERENCE_EXISTS, f"{message} Delete the schemas that refer to it first.")
