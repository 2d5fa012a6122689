"""Cluster: bootstrap, metadata of topics and leaders, coordinators, and connections to brokers.

Sends only Metadata and FindCoordinator itself. `ask_coordinator` sends to a coordinator, finds it again when it has
moved, and retries until the timeout. Requests to leaders (`offsets`, `fetch`, `sender`) call `forget` for a topic with
stale metadata.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct.connection import LATEST_VERSION, Connection, UnsupportedByBroker, is_fatal
from moldau.client.direct.failure import SASL_AUTHENTICATION_FAILED, Failure, failure_of, unreachable
from moldau.client.direct.pool import ConnectionPool
from moldau.client.direct.retries import Backoff, Retries
from moldau.client.direct.security import PLAINTEXT, Security
from moldau.security.sasl_client import AuthenticationFailed
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

Response = TypeVar("Response")
Result = TypeVar("Result")

GROUP, TRANSACTION = 0, 1  # kinds of coordinators
TIMEOUT_S = 30.0
CREATION_S = 15.0  # how long auto-creation of a topic may take: a broker does not tell whether it creates one
DEFAULT_PORT = 9092
# The coordinator has moved or is not available yet.
COORDINATOR_MOVED = frozenset({WireError.NOT_COORDINATOR, WireError.COORDINATOR_NOT_AVAILABLE})
NETWORK = (OSError, AuthenticationFailed, UnsupportedByBroker)  # the errors of a connection


class Leader(NamedTuple):
    node_id: int
    epoch: int


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    internal: bool
    leaders: Mapping[int, Leader]  # by partition; -1 as node id: no leader

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.name, partition) for partition in sorted(self.leaders)]


Topics: TypeAlias = dict[str, Topic | Failure]


def addresses(bootstrap: str | Iterable[str]) -> list[tuple[str, int]]:
    """Addresses of `host:port,host:port`, also with [IPv6] hosts; the port defaults to 9092."""
    found = []
    for each in bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap:
        text = each.strip()
        host, colon, port = text.rpartition(":")
        if not colon or text.endswith("]"):
            host, port = text, str(DEFAULT_PORT)
        if not host or not port.isdigit():
            raise ValueError(f"{text!r} is not HOST:PORT")
        found.append((host.strip("[]"), int(port)))
    if not found:
        raise ValueError("no bootstrap address")
    return found


class Cluster:
    """Not thread-safe: each task has its own. `timeout_s` bounds each request, and all retries of one call.

    With a pool, connections come from it, and go back to it.
    """

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        security: Security = PLAINTEXT,
        *,
        client_id: str = "moldau-direct",
        rack: str = "",
        timeout_s: float = TIMEOUT_S,
        connect_timeout_s: float | None = None,
        backoff: Backoff = Backoff(),  # noqa: B008  # an immutable value
        pool: ConnectionPool | None = None,
    ) -> None:
        self.timeout_s = timeout_s
        self.rack = rack  # client.rack: a leader may direct fetches to a replica in it (KIP-392)
        self._connect_timeout_s = connect_timeout_s
        self._backoff = backoff
        self._pool = pool
        self._bootstrap = addresses(bootstrap)
        self._security = security
        self._client_id = client_id
        self._open: dict[tuple[str, int], Connection] = {}
        self._nodes: dict[int, tuple[str, int]] = {}
        self._topics: dict[str, Topic] = {}
        self._coordinators: dict[tuple[int, str], tuple[str, int]] = {}

    def __enter__(self) -> "Cluster":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._open.values():
            self.release(connection)
        self._open.clear()

    def retries(self, timeout_s: float | None = None) -> Retries:
        """Retries within the default timeout or this one."""
        return Retries(self.timeout_s if timeout_s is None else timeout_s, self._backoff)

    # ── topics and leaders ──────────────────────────────────────────────────────────────────────────────────────────

    def describe(
        self, names: Sequence[str] | None, retries: Retries | None = None, *, create: bool = False
    ) -> Topics | Failure:
        """The topics with these names, or all; a topic that cannot be described has a Failure.

        With `create`, brokers with `auto.create.topics.enable` create missing topics, and this waits for them.
        """
        retries = retries or self.retries()
        first_response: float | None = None
        topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        while True:
            response = self._ask_any(request, MetadataResponse, retries)
            if isinstance(response, Failure):
                return response
            if response.brokers:
                self._nodes = {row.node_id: (row.host, row.port) for row in response.brokers}
            found = {row.name or "": _topic(row) for row in response.topics}
            self._topics |= {name: topic for name, topic in found.items() if isinstance(topic, Topic)}
            # A topic that was just created has no leader yet; a missing topic is waited for only with `create`.
            now = time.monotonic()
            first_response = first_response or now
            waits = create and now - first_response < CREATION_S
            pending = [each for each in found.values() if isinstance(each, Failure) and _passes(each, waits)]
            if not pending or not retries.again():
                return found

    def topic(self, name: str, retries: Retries | None = None, *, create: bool = False) -> Topic | Failure:
        """The topic from the cache, or described; with `create`, brokers may create it."""
        if name not in self._topics:
            found = self.describe([name], retries, create=create)
            if isinstance(found, Failure):
                return found
            return found.get(name, failure_of(WireError.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r}"))
        return self._topics[name]

    def brokers(self) -> list[int] | Failure:
        """Ids of the live brokers."""
        found = self.describe([])
        return found if isinstance(found, Failure) else sorted(self._nodes)

    def forget(self, *names: str) -> None:
        """Drop the cached metadata of these topics."""
        for name in names:
            self._topics.pop(name, None)

    def leader(self, tp: TopicPartition, retries: Retries | None = None) -> Leader | Failure:
        """The leader of a partition, as far as known; LEADER_NOT_AVAILABLE is retriable."""
        topic = self.topic(tp.topic, retries)
        if isinstance(topic, Failure):
            return topic
        if tp.partition not in topic.leaders:
            return failure_of(WireError.UNKNOWN_TOPIC_OR_PARTITION, f"{tp.topic} has no partition {tp.partition}")
        leader = topic.leaders[tp.partition]
        if leader.node_id not in self._nodes:
            return failure_of(5, f"partition {tp.partition} of {tp.topic} has no leader")
        return leader

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def broker(self, node_id: int) -> Connection:
        """The shared connection to a broker; raises the errors of `Connection`."""
        return self._connect(self._nodes[node_id])

    def has_broker(self, node_id: int) -> bool:
        return node_id in self._nodes

    def dedicated_connection(self, node_id: int) -> Connection:
        """A connection for a caller that keeps requests in flight, and releases or closes it."""
        return self._new(self._nodes[node_id])

    def release(self, connection: Connection) -> None:
        """The caller no longer needs a connection of this cluster."""
        if self._pool is None:
            connection.close()
        else:
            self._pool.give((*self._identity, connection.address), connection)

    def _connect(self, address: tuple[str, int]) -> Connection:
        known = self._open.get(address)
        if known is not None and not known.stale:
            return known
        if known is not None:
            known.close()
        self._open[address] = self._new(address)
        return self._open[address]

    @property
    def _identity(self) -> tuple[object, ...]:
        """What two clusters must have in common to share connections."""
        return self._security, self._client_id, self.timeout_s, self._connect_timeout_s

    def _new(self, address: tuple[str, int]) -> Connection:
        if self._pool is not None:
            pooled = self._pool.take((*self._identity, f"{address[0]}:{address[1]}"))
            if pooled is not None:
                return pooled
        return Connection(
            *address,
            self._security,
            client_id=self._client_id,
            timeout_s=self.timeout_s,
            connect_timeout_s=self._connect_timeout_s,
        )

    def _ask_any(
        self, request: object, response: type[Response], retries: Retries, until: int = LATEST_VERSION
    ) -> Response | Failure:
        """Ask any broker: first connected ones, then known ones, then the bootstrap addresses."""
        while True:
            last: Failure | None = None
            for address in dict.fromkeys((*self._open, *self._nodes.values(), *self._bootstrap)):
                try:
                    return self._connect(address).ask(request, response, until=until)
                except NETWORK as error:
                    last = network_failure(f"{address[0]}:{address[1]}", error)
                    if not last.retriable:
                        return last
            assert last is not None, "there is at least one bootstrap address"
            if not retries.again():
                return last

    def ask_any(
        self, request: object, response: type[Response], error_of: Callable[[Response], int]
    ) -> Response | Failure:
        """Ask any broker, and retry retriable errors."""
        retries = self.retries()
        while True:
            reply = self._ask_any(request, response, retries)
            if isinstance(reply, Failure):
                return reply
            code = error_of(reply)
            if not code:
                return reply
            problem = failure_of(code, type(request).__name__.removesuffix("Request"))
            if not problem.retriable or not retries.again():
                return problem

    # ── coordinators ────────────────────────────────────────────────────────────────────────────────────────────────

    def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: object,
        response: type[Response],
        error_of: Callable[[Response], int],
        retries: Retries | None = None,
        *,
        since: int = 0,
        until: int = LATEST_VERSION,
    ) -> Response | Failure:
        """Ask the coordinator, and retry retriable errors. `error_of` picks the error from a response."""
        retries = retries or self.retries()
        while True:
            reply = self._ask_coordinator_once(kind, key, request, response, retries, since, until)
            if not isinstance(reply, Failure):
                code = error_of(reply)
                if not code:
                    return reply
                if code in COORDINATOR_MOVED:
                    self._coordinators.pop((kind, key), None)
                reply = failure_of(code, f"{type(request).__name__.removesuffix('Request')} for {key!r}")
            if not reply.retriable or not retries.again():
                return reply

    def _ask_coordinator_once(
        self, kind: int, key: str, request: object, response: type[Response], retries: Retries, since: int, until: int
    ) -> Response | Failure:
        address = self.coordinator(kind, key, retries)
        if isinstance(address, Failure):
            return address
        try:
            return self._connect(address).ask(request, response, since=since, until=until)
        except NETWORK as error:
            self._coordinators.pop((kind, key), None)
            return network_failure(f"{address[0]}:{address[1]}", error)

    def coordinator(self, kind: int, key: str, retries: Retries) -> tuple[str, int] | Failure:
        """Address of the coordinator of a group or transactional id."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        while (kind, key) not in self._coordinators:
            response = self._ask_any(request, FindCoordinatorResponse, retries)
            if isinstance(response, Failure):
                return response
            found = response.coordinators[0]
            if not found.error_code:
                self._coordinators[kind, key] = (found.host, found.port)
            else:
                problem = failure_of(found.error_code, f"the coordinator of {key!r}")
                if not problem.retriable or not retries.again():
                    return problem
        return self._coordinators[kind, key]

    def feature(self, name: str) -> int | Failure:
        """The finalized level of a feature; 0 if it is not finalized."""
        response = self._ask_any(
            MetadataRequest(topics=(), allow_auto_topic_creation=False), MetadataResponse, self.retries()
        )
        if isinstance(response, Failure):
            return response
        connection = next(each for each in self._open.values() if not each.broken)
        return connection.features.get(name, 0)


def network_failure(address: str, error: Exception) -> Failure:
    """An error of `Connection` as a Failure."""
    if isinstance(error, AuthenticationFailed):
        return Failure(SASL_AUTHENTICATION_FAILED, "SASL_AUTHENTICATION_FAILED", str(error))
    if isinstance(error, UnsupportedByBroker):
        return Failure(WireError.UNSUPPORTED_VERSION, WireError.UNSUPPORTED_VERSION.name, str(error))
    lost = unreachable(address, error)
    return Failure(lost.code, lost.name, lost.message) if is_fatal(error) else lost


def _topic(row: MetadataResponseTopic) -> Topic | Failure:
    if row.error_code:
        return failure_of(row.error_code, f"topic {row.name!r}")
    leaders = {part.partition_index: Leader(part.leader_id, part.leader_epoch) for part in row.partitions}
    return Topic(row.name or "", row.topic_id, row.is_internal, leaders)


def _passes(problem: Failure, may_appear: bool) -> bool:
    return problem.retriable and (may_appear or problem.code != WireError.UNKNOWN_TOPIC_OR_PARTITION)
