"""Authorizer: decides for sessions by the ACLs of the image, logs denials and counts them.

What Produce and Fetch ask is remembered in the session until the ACLs change, so that they pay one look-up for a topic.
"""

import logging
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple
from uuid import UUID

from moldau.base.session import BROKER, Principal, Session
from moldau.broker.security.acl_documents import DENY_ALL, entries_of, pattern_of
from moldau.broker.security.denial_log import DenialLog
from moldau.metadata.documents import Documents
from moldau.metadata.image import ClusterImage
from moldau.security.acl_index import AclIndex
from moldau.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    AclBinding,
    AclFilter,
    Operation,
    ResourceType,
    bit_field,
)
from moldau.security.audit import host_of

logger: Final = logging.getLogger("moldau.authorizer")

SHOWN_LETTERS: Final = 300  # of a name in the log
REMEMBERED_TOPICS: Final = 10_000  # that one session reads or writes, in each dictionary


class Denial(NamedTuple):
    """A denied operation, as it is logged: `repeats` are those since the last log line."""

    principal: str
    host: str
    listener: str
    client_id: str | None
    api: str
    operation: Operation
    resource: ResourceType
    name: str
    repeats: int


class Authorizer:
    def __init__(
        self, super_users: Iterable[str], image: Callable[[], ClusterImage], *, allow_everyone: bool = False
    ) -> None:
        self.index = AclIndex((*super_users, str(BROKER)), allow_everyone=allow_everyone)
        self.version = 0  # grows when ACLs change
        self.denied = 0  # decisions
        self.on_denied: Callable[[Denial], None] | None = None  # called when a denial is logged
        self.image = image
        self._documents: Documents = {}
        self._log = DenialLog()
        self._fold(image().documents)  # at the start, so that no request waits for it

    def find(self, wanted: AclFilter) -> Iterator[AclBinding]:
        """The ACLs of the image that match."""
        self._follow()
        return self.index.find(wanted)

    def rights(self, session: Session) -> "Rights":
        """The rights of a session, by the newest ACLs."""
        self._follow()
        rights = session.rights
        if isinstance(rights, Rights) and rights.version == self.version and rights.principal is session.principal:
            return rights
        session.rights = rights = Rights(self, session)
        return rights

    def deny(self, rights: "Rights", operation: Operation, resource: ResourceType, name: str, api: str) -> None:
        self.denied += 1
        repeats = self._log.write(
            f"Principal = {_shown(rights.user)} is Denied operation = {operation.name} from host = {rights.host} "
            f"on resource = {resource.title}:LITERAL:{_shown(name)} for request = {api}"
        )
        if repeats is not None and self.on_denied is not None:
            client = (rights.user, rights.host, rights.listener, rights.client_id)
            self.on_denied(Denial(*client, api, operation, resource, name, repeats))

    def _follow(self) -> None:
        documents = self.image().documents
        if documents is not self._documents:
            self._fold(documents)

    def _fold(self, documents: Documents) -> None:
        """Take over the documents that have changed since the last time."""
        before = self._documents
        changed = [path for path, text in documents.items() if before.get(path) != text]
        changed += [path for path in before if path not in documents]
        for path in changed:
            pattern = pattern_of(path)
            if pattern is not None:
                entries = entries_of(documents.get(path))
                if entries is DENY_ALL:
                    logger.error("ACLs in %s cannot be read: everything is denied there. Delete and create them", path)
                self.index.put(pattern, entries)
                self.version += 1
        self._documents = documents


def _shown(name: str) -> str:
    """A name from the wire, which may be of any length and have line ends, in one line of a log."""
    return (name if name.isprintable() else name.encode("unicode_escape").decode())[:SHOWN_LETTERS]


class Rights:
    """What the principal of one session may do, by one version of the ACLs."""

    __slots__ = (
        "_authorizer",
        "client_id",
        "host",
        "listener",
        "principal",
        "reads",
        "reads_by_id",
        "user",
        "version",
        "writes",
        "writes_by_id",
    )

    def __init__(self, authorizer: Authorizer, session: Session) -> None:
        self._authorizer = authorizer
        self.version = authorizer.version
        self.principal: Principal = session.principal
        self.user = str(session.principal)
        self.host = host_of(session.peer)
        self.listener = session.listener
        self.client_id = session.client_id
        # Apart: a name can have the bytes of another topic's id.
        self.reads = AllowedTopics(self, Operation.READ, "Fetch", by_id=False)
        self.reads_by_id = AllowedTopics(self, Operation.READ, "Fetch", by_id=True)
        self.writes = AllowedTopics(self, Operation.WRITE, "Produce", by_id=False)
        self.writes_by_id = AllowedTopics(self, Operation.WRITE, "Produce", by_id=True)

    def may(self, operation: Operation, resource: ResourceType, name: str, api: str, *, log: bool = True) -> bool:
        authorizer = self._authorizer
        if authorizer.index.allowed(self.user, self.host, operation, resource, name):
            return True
        if log:
            authorizer.deny(self, operation, resource, name, api)
        return False

    def may_anywhere(self, operation: Operation, resource: ResourceType) -> bool:
        return self._authorizer.index.allowed_anywhere(self.user, self.host, operation, resource)

    def operations(self, resource: ResourceType, name: str) -> int:
        """The authorized operations, as Describe responses carry them (KIP-430)."""
        allowed = self._authorizer.index.allowed
        return bit_field(each for each in SUPPORTED[resource] if allowed(self.user, self.host, each, resource, name))

    def may_follow(self) -> bool:
        """Whether the principal may fetch as a follower."""
        return self.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, "Fetch")

    def may_write_in(self, transactional_id: bytes) -> bool:
        name = transactional_id.decode("utf-8", "replace")
        return self.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name, "Produce")

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._authorizer.image().topics_by_id.get(UUID(bytes=topic_id))
        return None if topic is None else topic.name


class AllowedTopics(dict[bytes, bool]):
    """Whether topics may be read or written, by name or id as they are in requests; the allowed ones are remembered."""

    __slots__ = ("_api", "_by_id", "_operation", "_rights")

    def __init__(self, rights: Rights, operation: Operation, api: str, *, by_id: bool) -> None:
        super().__init__()
        self._rights = rights
        self._operation = operation
        self._api = api
        self._by_id = by_id

    def __missing__(self, token: bytes) -> bool:
        name = self._rights.name_of(token) if self._by_id else token.decode("utf-8", "replace")
        if name is None:
            return True  # there is no such topic, which says the response
        if not self._rights.may(self._operation, ResourceType.TOPIC, name, self._api):
            return False
        if len(self) >= REMEMBERED_TOPICS:
            self.clear()
        self[bytes(token)] = True
        return True
