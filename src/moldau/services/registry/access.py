"""Access: what a user may do with subjects, by the ACLs of the brokers for the subjects' topics.

`orders-value` and `orders-key` are of topic `orders`; any other subject counts as a topic of its own name. The context
does not matter. ACLs are read again every few seconds; while they cannot be read for long, nobody has rights.
"""

import asyncio
import logging
import time
from collections.abc import Iterable
from typing import Final, Protocol

from moldau.client.admin.acls import Authorization, read_authorization
from moldau.client.admin.cluster import open_cluster
from moldau.client.admin.errors import AdminError
from moldau.client.admin.target import Target
from moldau.security.acl_index import AclIndex
from moldau.security.acls import CLUSTER_NAME, Operation, ResourceType
from moldau.services.http.authentication import Principal
from moldau.services.registry.core.errors import Code, RegistryError
from moldau.services.registry.core.names import split

logger = logging.getLogger("moldau.services.registry")

SUFFIXES: Final = ("-key", "-value")
REFRESH_S: Final = 5.0
STALE_S: Final = 120.0


class Access(Protocol):
    def may(self, principal: Principal, operation: Operation, subject: str | None) -> bool:
        """Whether a user may do it with a subject; with None, with the registry as a whole."""


def topic_of(subject: str) -> str:
    """The topic whose ACLs are those of a subject (TopicNameStrategy)."""
    name = split(subject).name
    for suffix in SUFFIXES:
        if name.endswith(suffix) and name != suffix:
            return name.removesuffix(suffix)
    return name


class Everyone:
    """Access without authentication."""

    def may(self, principal: Principal, operation: Operation, subject: str | None) -> bool:
        return True


class AclAccess:
    """The ACLs of a cluster. `super_users` are names that brokers may not tell, as Apache Kafka's do not."""

    def __init__(self, target: Target, super_users: Iterable[str] = ()) -> None:
        self._target = target
        self._super_users = tuple(f"User:{name.removeprefix('User:')}" for name in super_users)
        self._index: AclIndex | None = None
        self._enabled = True
        self._read_at = -STALE_S
        self._task: asyncio.Task[None] | None = None
        self._problem = ""

    def start(self) -> None:
        self._task = asyncio.create_task(self._refresh())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def may(self, principal: Principal, operation: Operation, subject: str | None) -> bool:
        if time.monotonic() - self._read_at > STALE_S:
            reason = self._problem or "they are being read"
            raise RegistryError(Code.STORE_ERROR, f"The ACLs of the brokers are not known: {reason}. Try again.")
        user = f"User:{principal.user}"
        if not self._enabled or user in self._super_users:
            return True
        resource = ResourceType.CLUSTER if subject is None else ResourceType.TOPIC
        name = CLUSTER_NAME if subject is None else topic_of(subject)
        return self._index is not None and self._index.allowed(user, principal.host, operation, resource, name)

    async def _refresh(self) -> None:
        while True:
            try:
                found = await asyncio.to_thread(self._read)
                self._take(found)
            except AdminError as problem:
                if str(problem) != self._problem:
                    logger.warning("Cannot read the ACLs of the brokers: %s", problem)
                self._problem = str(problem)
            await asyncio.sleep(REFRESH_S)

    def _read(self) -> Authorization:
        with open_cluster(self._target) as cluster:
            return read_authorization(cluster)

    def _take(self, found: Authorization) -> None:
        self._enabled = found.enabled
        self._index = found.index()
        self._read_at, self._problem = time.monotonic(), ""
