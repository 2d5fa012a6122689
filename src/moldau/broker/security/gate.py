"""Gate: every request passes it before its handler. Knows no API.

A guard looks at a request of its API and lets it pass as it is, refuses it with a response, or narrows it to what is
allowed and completes the response afterwards: with errors for what was refused, or without what may not be seen.
"""

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from moldau.base.later import Later, chain
from moldau.broker.call import Call
from moldau.broker.controller import NotController
from moldau.broker.security.authorizer import Authorizer, Rights
from moldau.broker.settings import BrokerConfig
from moldau.metadata.image import ClusterImage
from moldau.net.reply import BadRequest
from moldau.security.acls import CLUSTER_NAME, Operation, ResourceType
from moldau.wire.codec import decode
from moldau.wire.messages.registry import ApiMessages

R = TypeVar("R")


class Narrowed(NamedTuple):
    """The part of a request that is allowed, and what makes its response that of the whole."""

    request: object
    complete: Callable[[Any], object]


Verdict: TypeAlias = object | Narrowed | None  # None: it may pass; else a response that refuses it
Serve: TypeAlias = Callable[[object, Call], object]


class Visitor:
    """One request at the gate: its rights, and the metadata that guards look things up in."""

    __slots__ = ("_api", "_rights", "administered", "config", "image", "version")

    def __init__(self, rights: Rights, api: str, call: Call, image: ClusterImage, config: BrokerConfig) -> None:
        self._rights = rights
        self._api = api
        self.version = call.version
        self.administered = None if call.member is None else call.member.administered  # an organisation
        self.image = image
        self.config = config

    def may(self, operation: Operation, resource: ResourceType, name: str, *, log: bool = True) -> bool:
        return self._rights.may(operation, resource, name, self._api, log=log)

    def may_topic(self, operation: Operation, name: str, *, log: bool = True) -> bool:
        return self.may(operation, ResourceType.TOPIC, name, log=log)

    def may_group(self, operation: Operation, name: str, *, log: bool = True) -> bool:
        return self.may(operation, ResourceType.GROUP, name, log=log)

    def may_transactional_id(self, operation: Operation, name: str, *, log: bool = True) -> bool:
        return self.may(operation, ResourceType.TRANSACTIONAL_ID, name, log=log)

    def may_cluster(self, operation: Operation, *, log: bool = True) -> bool:
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME, log=log)

    def may_write_anywhere(self) -> bool:
        return self._rights.may_anywhere(Operation.WRITE, ResourceType.TOPIC)

    def operations(self, resource: ResourceType, name: str) -> int:
        return self._rights.operations(resource, name)

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name


Guard: TypeAlias = Callable[[Visitor, Any], Verdict]


def everyone(visitor: Visitor, request: object) -> None:
    """The guard of an API that needs no right."""


def by_handler(visitor: Visitor, request: object) -> None:
    """The guard of an API whose handler checks for itself, row by row."""


def split(rows: Iterable[R], allowed: Callable[[R], bool]) -> tuple[tuple[R, ...], tuple[R, ...]]:
    """The rows that are allowed, and the others."""
    kept: list[R] = []
    refused: list[R] = []
    for row in rows:
        (kept if allowed(row) else refused).append(row)
    return tuple(kept), tuple(refused)


class Gate:
    """Without an authorizer only members of organisations are checked.

    `guards` are by API key. An API without one is refused to everyone that is checked.
    """

    def __init__(
        self,
        authorizer: Authorizer | None,
        guards: Mapping[int, Guard],
        image: Callable[[], ClusterImage],
        config: Callable[[], BrokerConfig],
    ) -> None:
        self._authorizer = authorizer
        self._guards = guards
        self._image = image
        self._config = config

    def serve(self, messages: ApiMessages, serve: Serve, request: object, call: Call) -> object:
        """The response of `serve`, or its Later or coroutine, with what is refused."""
        rights = call.rights(self._authorizer)
        if rights is None:
            return serve(request, call)
        guard = self._guards.get(messages.key)
        if guard is None:
            raise BadRequest(f"{messages.name} has no guard, so nobody may call it")
        verdict = guard(Visitor(rights, messages.name, call, self._image(), self._config()), request)
        if verdict is None:
            return serve(request, call)
        if not isinstance(verdict, Narrowed):
            return verdict
        return completed(messages, call, serve(verdict.request, call), verdict.complete)


def completed(messages: ApiMessages, call: Call, response: object, complete: Callable[[Any], object]) -> object:
    """What `complete` makes of a response, which may be encoded, or come later."""

    def finish(answered: object) -> object:
        if isinstance(answered, bytes):
            answered = decode(messages.response, call.version, memoryview(answered), 0)
        if isinstance(answered, NotController):
            return NotController(complete(answered.response))
        return complete(answered)

    if inspect.isawaitable(response):
        return _awaited(response, finish)
    return chain(response, finish) if isinstance(response, Later) else finish(response)


async def _awaited(work: Awaitable[object], finish: Callable[[object], object]) -> object:
    return finish(await work)
