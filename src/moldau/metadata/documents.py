"""Documents: the JSON texts of users, ACLs, delegation tokens and organisations, by znode path. Reads no text.

The paths and texts of users, quotas, ACLs and tokens are those that Kafka used on ZooKeeper; the room `security` gives
them a meaning. A document may have others below it (`/config/users/alice/clients/app`), and a path between them need
not be a document: its znode is empty, exists as long as it is needed, and is no part of the image.
"""

from collections.abc import Iterator, Mapping
from urllib.parse import quote

from moldau.base.tree import Create, Delete, Op, Set, parent_of

ROOTS = (
    "/config/users",
    "/config/clients",
    "/config/ips",
    "/kafka-acl",
    "/kafka-acl-extended",
    "/delegation_token",
    "/moldau/organisations",
)
FOUNDED = ("/", "/config", "/moldau")  # znodes of every cluster, above documents

Documents = Mapping[str, str]
Changed = Mapping[str, str | None]  # None: deleted


def segment(name: str) -> str:
    """A name as one step of a path: quoted as in a URL, since it may be any text."""
    quoted = quote(name, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")


def is_document(path: str) -> bool:
    return path.startswith(_PREFIXES)


def changed(documents: Documents, changes: Changed) -> Documents:
    """The documents after a change."""
    after = {**documents, **{path: text for path, text in changes.items() if text is not None}}
    for path, text in changes.items():
        if text is None:
            after.pop(path, None)
    return after


def writes(changes: Changed, before: Documents, after: Documents) -> Iterator[Op]:
    """The operations on znodes, those above and below the changed documents included."""
    touched = sorted({step for path in changes for step in _steps(path)})
    had, has = _znodes(before), _znodes(after)
    for step in touched:  # a parent comes before its children
        if step in has and step not in had:
            yield Create(step, has[step].encode())
        elif step in has and had[step] != has[step]:
            yield Set(step, has[step].encode())
    for step in reversed(touched):
        if step in had and step not in has:
            yield Delete(step)


def _steps(path: str) -> Iterator[str]:
    while path not in FOUNDED:
        yield path
        path = parent_of(path)


def _znodes(documents: Documents) -> dict[str, str]:
    """The documents, and the empty znodes above them."""
    found = dict(documents)
    level = {parent_of(path) for path in documents}
    while level := {path for path in level if path not in FOUNDED}:
        found = dict.fromkeys(level, "") | found
        level = {parent_of(path) for path in level}
    return found


_PREFIXES = tuple(f"{root}/" for root in ROOTS)
