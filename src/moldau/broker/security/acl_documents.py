"""ACLs in the metadata: the documents of resource patterns, and the changes that create and delete ACLs."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final
from urllib.parse import unquote

from moldau.metadata.changes import DocumentsChanged
from moldau.metadata.documents import Documents, segment
from moldau.security.acls import (
    ANYONE,
    WILDCARD,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    from_text,
    to_text,
)

ROOTS: Final = {PatternType.LITERAL: "/kafka-acl/", PatternType.PREFIXED: "/kafka-acl-extended/prefixed/"}
REMEMBERED: Final = 20_000  # documents that need not be read again to find ACLs among them
DENY_ALL: Final = (AclEntry(ANYONE, WILDCARD, Operation.ALL, Permission.DENY),)


def path_of(pattern: ResourcePattern) -> str:
    name = pattern.name if pattern.name == WILDCARD else segment(pattern.name)
    return f"{ROOTS[pattern.pattern]}{pattern.resource.title}/{name}"


@lru_cache(REMEMBERED)
def pattern_of(path: str) -> ResourcePattern | None:
    """The resource pattern that a document is about; None for a document of something else."""
    for kind, root in ROOTS.items():
        if path.startswith(root):
            resource, _, name = path.removeprefix(root).partition("/")
            try:
                return ResourcePattern(ResourceType.of_title(resource), unquote(name), kind)
            except ValueError:
                return None
    return None


@lru_cache(REMEMBERED)
def entries_of(text: str | None) -> tuple[AclEntry, ...]:
    """The ACLs of a document. One that cannot be read denies everything: it may have denied something before."""
    if text is None:
        return ()
    try:
        return from_text(text)
    except ValueError:
        return DENY_ALL


def found(documents: Documents, wanted: AclFilter) -> Iterator[AclBinding]:
    """The ACLs that match."""
    patterns = ((pattern_of(path), text) for path, text in documents.items())
    return wanted.find((pattern, entries_of(text)) for pattern, text in patterns if pattern is not None)


def created(documents: Documents, bindings: Iterable[AclBinding]) -> DocumentsChanged | None:
    """The change that creates those ACLs that there are not yet; None if there are all."""
    after: dict[str, tuple[AclEntry, ...]] = {}
    for pattern, entry in bindings:
        path = path_of(pattern)
        entries = after.get(path, entries_of(documents.get(path)))
        if entry not in entries:
            after[path] = (*entries, entry)
    return DocumentsChanged({path: to_text(entries) for path, entries in after.items()}) if after else None


def deleted(
    documents: Documents, filters: Sequence[AclFilter]
) -> tuple[DocumentsChanged | None, list[set[AclBinding]]]:
    """The change that deletes all ACLs that match, and those that match each filter."""
    matching = [set(found(documents, wanted)) for wanted in filters]
    gone = set[AclBinding]().union(*matching)
    changes: dict[str, str | None] = {}
    for pattern in {binding.pattern for binding in gone}:
        path = path_of(pattern)
        left = [entry for entry in entries_of(documents[path]) if AclBinding(pattern, entry) not in gone]
        changes[path] = to_text(left) if left else None
    return (DocumentsChanged(changes) if changes else None), matching
