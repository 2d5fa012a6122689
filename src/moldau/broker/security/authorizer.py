"""Authorizer: decides for sessions by the ACLs of the image, logs denials and counts them.

What Produce and Fetch ask is remembered in the session until the ACLs change, so that they pay one look-up for a topic.
"""

import logging
from collections.abc import Callable, Iterable
from typing import Final, Protocol
from uuid import UUID

from moldau.base.session import BROKER, Principal, Session
from moldau.broker.security.acl_documents import DENY_ALL, entries_of, pattern_of
from moldau.broker.security.denials import Denial, Denials
from moldau.metadata.documents import Documents
from moldau.metadata.image import ClusterImage
from moldau.security.acl_index import AclIndex
from moldau.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    Operation,
    ResourceType,
    bit_field,
)
from moldau.security.audit import host_of

logger: Final = logging.getLogger("moldau.authorizer")

REMEMBERED_TOPICS: Final = 10_000  # that one session reads or writes, in each dictionary


class Authorizer:
    def __init__(
        self,
        super_users: Iterable[str],
        image: Callable[[], ClusterImage],
        denials: Denials,
        *,
        allow_everyone: bool = False,
    ) -> None:
        self.index = AclIndex((*super_users, str(BROKER)), allow_everyone=allow_everyone)
        self.version = 0  # grows when ACLs change
        self.denials = denials
        self.image = image
        self._documents: Documents = {}
        self._fold(image().documents)  # at the start, so that no request waits for it

    def rights(self, session: Session) -> "Rights":
        """The rights of a session, by the newest ACLs."""
        self._follow()
        rights = session.rights
        if isinstance(rights, Rights) and rights.version == self.version and rights.principal is session.principal:
            return rights
        session.rights = rights = Rights(self, session)
        return rights

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


class Index(Protocol):
    """Decides by ACLs, or by roles."""

    def allowed(self, user: str, host: str, operation: Operation, resource: ResourceType, name: str, /) -> bool: ...

    def allowed_anywhere(self, user: str, host: str, operation: Operation, resource: ResourceType, /) -> bool: ...


class RightsSource(Protocol):
    """Where rights come from, and where denials go to."""

    denials: Denials

    @property
    def version(self) -> int: ...

    @property
    def index(self) -> Index: ...

    @property
    def image(self) -> Callable[[], ClusterImage]: ...


class Rights:
    """What the principal of one session may do, by one version of the ACLs or roles."""

    __slots__ = (
        "_source",
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

    def __init__(self, source: RightsSource, session: Session) -> None:
        self._source = source
        self.version = source.version
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
        source = self._source
        if source.index.allowed(self.user, self.host, operation, resource, name):
            return True
        if log:
            client = (self.user, self.host, self.listener, self.client_id)
            source.denials.note(Denial(*client, api, operation, resource, name))
        return False

    def may_anywhere(self, operation: Operation, resource: ResourceType) -> bool:
        return self._source.index.allowed_anywhere(self.user, self.host, operation, resource)

    def operations(self, resource: ResourceType, name: str) -> int:
        """The authorized operations, as Describe responses carry them (KIP-430)."""
        allowed = self._source.index.allowed
        return bit_field(each for each in SUPPORTED[resource] if allowed(self.user, self.host, each, resource, name))

    def may_follow(self) -> bool:
        """Whether the principal may fetch as a follower."""
        return self.may(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, "Fetch")

    def may_write_in(self, transactional_id: bytes) -> bool:
        name = transactional_id.decode("utf-8", "replace")
        return self.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name, "Produce")

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._source.image().topics_by_id.get(UUID(bytes=topic_id))
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
