"""A cluster as a client sees it: bootstrap, brokers, who leads and who coordinates, and connections to them.

Asks for nothing but metadata and coordinators itself. What goes to a coordinator goes through `ask_coordinator`, which
looks again when it has moved and tries until the time is up; those who ask leaders (`offsets`, `fetch`, `sender`)
`forget` a topic whose leader has moved.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from moldau.base.errors import WireError
from moldau.client.direct.connection import NEWEST, Connection, UnsupportedByBroker, never_works
from moldau.client.direct.failed import SASL_AUTHENTICATION_FAILED, Failed, failed, unreachable
from moldau.client.direct.patience import Patience, Pauses
from moldau.client.direct.sasl import AuthenticationFailed
from moldau.client.direct.security import PLAINTEXT, Security
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)

Answer = TypeVar("Answer")
Result = TypeVar("Result")

GROUP, TRANSACTION = 0, 1  # kinds of coordinators
TIMEOUT_S = 30.0
CREATION_S = 15.0  # how long a topic that was not there may take to be: brokers do not say whether they create it
DEFAULT_PORT = 9092
# The coordinator has moved, or is not there yet.
ELSEWHERE = frozenset({WireError.NOT_COORDINATOR, WireError.COORDINATOR_NOT_AVAILABLE})
NETWORK = (OSError, AuthenticationFailed, UnsupportedByBroker)  # what a connection raises


class Place(NamedTuple):
    topic: str
    partition: int


class Leader(NamedTuple):
    node_id: int
    epoch: int


class Topic(NamedTuple):
    name: str
    topic_id: UUID
    internal: bool
    leaders: Mapping[int, Leader]  # by partition; a partition without a leader has node -1

    @property
    def places(self) -> list[Place]:
        return [Place(self.name, partition) for partition in sorted(self.leaders)]


Topics: TypeAlias = dict[str, Topic | Failed]


def addresses(bootstrap: str | Iterable[str]) -> list[tuple[str, int]]:
    """`host:port,host:port`, also with [IPv6] hosts; a port may be left out."""
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
    """Not for several threads: each task has its own. `timeout_s` bounds a request, and all tries of one call."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        security: Security = PLAINTEXT,
        *,
        client_id: str = "moldau-direct",
        rack: str = "",
        timeout_s: float = TIMEOUT_S,
        connect_timeout_s: float | None = None,
        pauses: Pauses = Pauses(),  # noqa: B008  # an immutable value
    ) -> None:
        self.timeout_s = timeout_s
        self.rack = rack  # where the client stands: readers may be sent to a replica nearby (KIP-392)
        self._connect_timeout_s = connect_timeout_s
        self._pauses = pauses
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
            connection.close()
        self._open.clear()

    def patience(self, timeout_s: float | None = None) -> Patience:
        """For as long as a call may take, or as long as is said."""
        return Patience(self.timeout_s if timeout_s is None else timeout_s, self._pauses)

    # ── topics and leaders ──────────────────────────────────────────────────────────────────────────────────────────

    def describe(
        self, names: Sequence[str] | None, patience: Patience | None = None, *, create: bool = False
    ) -> Topics | Failed:
        """The topics with these names, or all. One that stays away keeps its error.

        With `create` those that do not exist are waited for, and brokers that may (`auto.create.topics.enable`) create
        them.
        """
        patience = patience or self.patience(min(self.timeout_s, CREATION_S) if create else None)
        topics = None if names is None else tuple(MetadataRequestTopic(name=name) for name in names)
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=create)
        while True:
            answer = self._ask_any(request, MetadataResponse, patience)
            if isinstance(answer, Failed):
                return answer
            if answer.brokers:
                self._nodes = {row.node_id: (row.host, row.port) for row in answer.brokers}
            found = {row.name or "": _topic(row) for row in answer.topics}
            self._topics |= {name: topic for name, topic in found.items() if isinstance(topic, Topic)}
            # A topic that was created a moment ago has no leader yet; one that does not exist is not waited for.
            pending = [each for each in found.values() if isinstance(each, Failed) and _passes(each, create)]
            if not pending or not patience.again():
                return found

    def topic(self, name: str, patience: Patience | None = None, *, create: bool = False) -> Topic | Failed:
        """As known, or asked for if it is not; with `create` brokers may create it."""
        if name not in self._topics:
            found = self.describe([name], patience, create=create)
            if isinstance(found, Failed):
                return found
            return found.get(name, failed(WireError.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r}"))
        return self._topics[name]

    def brokers(self) -> list[int] | Failed:
        """The brokers that are there now."""
        found = self.describe([])
        return found if isinstance(found, Failed) else sorted(self._nodes)

    def forget(self, *names: str) -> None:
        """What was known of these topics is not true any more."""
        for name in names:
            self._topics.pop(name, None)

    def leader(self, place: Place, patience: Patience | None = None) -> Leader | Failed:
        """Who leads the partition, as far as known now; LEADER_NOT_AVAILABLE passes by itself."""
        topic = self.topic(place.topic, patience)
        if isinstance(topic, Failed):
            return topic
        if place.partition not in topic.leaders:
            return failed(WireError.UNKNOWN_TOPIC_OR_PARTITION, f"{place.topic} has no partition {place.partition}")
        leader = topic.leaders[place.partition]
        if leader.node_id not in self._nodes:
            return failed(5, f"partition {place.partition} of {place.topic} has no leader")
        return leader

    # ── connections ─────────────────────────────────────────────────────────────────────────────────────────────────

    def broker(self, node_id: int) -> Connection:
        """A connection to the broker; raises what `Connection` raises."""
        return self._connect(self._nodes[node_id])

    def knows(self, node_id: int) -> bool:
        return node_id in self._nodes

    def own_connection(self, node_id: int) -> Connection:
        """One that nobody else uses, for whoever keeps requests in flight; the caller closes it."""
        return self._new(self._nodes[node_id])

    def _connect(self, address: tuple[str, int]) -> Connection:
        known = self._open.get(address)
        if known is not None and not known.stale:
            return known
        if known is not None:
            known.close()
        self._open[address] = self._new(address)
        return self._open[address]

    def _new(self, address: tuple[str, int]) -> Connection:
        return Connection(
            *address,
            self._security,
            client_id=self._client_id,
            timeout_s=self.timeout_s,
            connect_timeout_s=self._connect_timeout_s,
        )

    def _ask_any(
        self, request: object, answer: type[Answer], patience: Patience, until: int = NEWEST
    ) -> Answer | Failed:
        """Of whichever broker answers: those that are connected, those that are known, those that were given."""
        while True:
            last: Failed | None = None
            for address in dict.fromkeys((*self._open, *self._nodes.values(), *self._bootstrap)):
                try:
                    return self._connect(address).ask(request, answer, until=until)
                except NETWORK as error:
                    last = network_failure(f"{address[0]}:{address[1]}", error)
                    if not last.retriable:
                        return last
            assert last is not None, "there is at least one bootstrap address"
            if not patience.again():
                return last

    def ask_any(self, request: object, answer: type[Answer], error_of: Callable[[Answer], int]) -> Answer | Failed:
        """Of any broker, again while the error passes by itself."""
        patience = self.patience()
        while True:
            reply = self._ask_any(request, answer, patience)
            if isinstance(reply, Failed):
                return reply
            code = error_of(reply)
            if not code:
                return reply
            problem = failed(code, type(request).__name__.removesuffix("Request"))
            if not problem.retriable or not patience.again():
                return problem

    # ── coordinators ────────────────────────────────────────────────────────────────────────────────────────────────

    def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: object,
        answer: type[Answer],
        error_of: Callable[[Answer], int],
        patience: Patience | None = None,
        *,
        since: int = 0,
        until: int = NEWEST,
    ) -> Answer | Failed:
        """Of the coordinator, again while the error passes by itself. `error_of` picks the error that decides."""
        patience = patience or self.patience()
        while True:
            reply = self._ask_coordinator_once(kind, key, request, answer, patience, since, until)
            if not isinstance(reply, Failed):
                code = error_of(reply)
                if not code:
                    return reply
                if code in ELSEWHERE:
                    self._coordinators.pop((kind, key), None)
                reply = failed(code, f"{type(request).__name__.removesuffix('Request')} for {key!r}")
            if not reply.retriable or not patience.again():
                return reply

    def _ask_coordinator_once(
        self, kind: int, key: str, request: object, answer: type[Answer], patience: Patience, since: int, until: int
    ) -> Answer | Failed:
        address = self.coordinator(kind, key, patience)
        if isinstance(address, Failed):
            return address
        try:
            return self._connect(address).ask(request, answer, since=since, until=until)
        except NETWORK as error:
            self._coordinators.pop((kind, key), None)
            return network_failure(f"{address[0]}:{address[1]}", error)

    def coordinator(self, kind: int, key: str, patience: Patience) -> tuple[str, int] | Failed:
        """Where the coordinator of a group or transactional id listens."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        while (kind, key) not in self._coordinators:
            answer = self._ask_any(request, FindCoordinatorResponse, patience)
            if isinstance(answer, Failed):
                return answer
            found = answer.coordinators[0]
            if not found.error_code:
                self._coordinators[kind, key] = (found.host, found.port)
            else:
                problem = failed(found.error_code, f"the coordinator of {key!r}")
                if not problem.retriable or not patience.again():
                    return problem
        return self._coordinators[kind, key]

    def feature(self, name: str) -> int | Failed:
        """The level of a finalized feature, 0 if it is not."""
        answer = self._ask_any(
            MetadataRequest(topics=(), allow_auto_topic_creation=False), MetadataResponse, self.patience()
        )
        if isinstance(answer, Failed):
            return answer
        connection = next(each for each in self._open.values() if not each.broken)
        return connection.features.get(name, 0)


def network_failure(address: str, error: Exception) -> Failed:
    """What a connection raised, as a value."""
    if isinstance(error, AuthenticationFailed):
        return Failed(SASL_AUTHENTICATION_FAILED, "SASL_AUTHENTICATION_FAILED", str(error))
    if isinstance(error, UnsupportedByBroker):
        return Failed(WireError.UNSUPPORTED_VERSION, WireError.UNSUPPORTED_VERSION.name, str(error))
    lost = unreachable(address, error)
    return Failed(lost.code, lost.name, lost.message) if never_works(error) else lost


def _topic(row: MetadataResponseTopic) -> Topic | Failed:
    if row.error_code:
        return failed(row.error_code, f"topic {row.name!r}")
    leaders = {part.partition_index: Leader(part.leader_id, part.leader_epoch) for part in row.partitions}
    return Topic(row.name or "", row.topic_id, row.is_internal, leaders)


def _passes(problem: Failed, create: bool) -> bool:
    return problem.retriable and (create or problem.code != WireError.UNKNOWN_TOPIC_OR_PARTITION)
