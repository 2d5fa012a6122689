"""Requests that librdkafka's admin client lacks, written by Moldau's own wire layer. Blocking, one at a time.

One socket per broker, in the newest version that both sides have. Neither TLS nor SASL yet.
"""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Final, TypeVar

from moldau.base.errors import WireError
from moldau.tools.connect import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Target, unreachable
from moldau.tools.failure import CommandError, misused
from moldau.tools.places import Place
from moldau.wire.codec import MalformedMessage, decode, encode
from moldau.wire.headers import API_VERSIONS, pack_request_header, read_response_header
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)
from moldau.wire.messages.registry import APIS

Answer = TypeVar("Answer")

CLIENT_ID = "moldau-cli"
LARGEST_ANSWER = 100 * 1024 * 1024
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
ASK_AGAIN_S = 0.2
# Errors that pass by themselves: a coordinator that is being found or is still loading, a transaction that is ending.
PASSING = {
    WireError.COORDINATOR_LOAD_IN_PROGRESS,
    WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.NOT_COORDINATOR,
    WireError.CONCURRENT_TRANSACTIONS,
}

_LENGTH = Struct(">i")
_APIS: Final = {api.request: api for api in APIS}


class Broker:
    """A connection to one broker."""

    def __init__(self, host: str, port: int) -> None:
        self.address = f"{host}:{port}"
        self._socket = socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S)
        self._socket.settimeout(REQUEST_TIMEOUT_S)
        self._correlation_id = 0
        self._served = {API_VERSIONS: (0, 0)}  # the one version that every broker answers
        try:
            answer = self.ask(ApiVersionsRequest(), ApiVersionsResponse)
        except BaseException:
            self.close()
            raise
        self._served = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def close(self) -> None:
        self._socket.close()

    def ask(self, request: object, answer: type[Answer], *, since: int = 0) -> Answer:
        """Sends a request in the newest version that both sides have, and waits for the answer.

        `since` is the first version that has what the request asks for.
        """
        api = _APIS[type(request)]
        least, newest = self._served.get(api.key, (0, -1))
        version = min(newest, api.highest)
        if version < max(least, api.lowest, since):
            raise CommandError(f"the broker at {self.address} is too old, or too new, for this ({api.name})")
        self._correlation_id += 1
        body = pack_request_header(api.key, version, self._correlation_id, CLIENT_ID) + encode(request, version)
        self._socket.sendall(_LENGTH.pack(len(body)) + body)
        frame = self._receive()
        try:
            correlation_id, position = read_response_header(api.key, version, frame)
            if correlation_id != self._correlation_id:
                raise MalformedMessage("it answers another request")
            return decode(answer, version, frame, position)
        except MalformedMessage as bad:
            raise CommandError(f"the answer of {self.address} to {api.name} cannot be read: {bad}") from bad

    def _receive(self) -> bytes:
        (length,) = _LENGTH.unpack(self._receive_exactly(_LENGTH.size))
        if not 0 < length <= LARGEST_ANSWER:
            raise CommandError(f"what listens at {self.address} does not answer like a Kafka broker")
        return self._receive_exactly(length)

    def _receive_exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self._socket.recv(min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError("it closed the connection")
            data += part
        return bytes(data)


class Cluster:
    """The brokers of a cluster, connected to when they are first needed."""

    def __init__(self, target: Target) -> None:
        self._open: dict[tuple[str, int], Broker] = {}
        self._first = self._connect_first(target)
        answer = self._first.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False), MetadataResponse)
        self._addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}

    def _connect_first(self, target: Target) -> Broker:
        addresses = target.addresses()
        if not addresses:
            raise misused("no broker address given", remedy="Give --bootstrap as HOST:PORT")
        for number, address in enumerate(addresses, start=1):
            try:
                return self._connect(address)
            except OSError:
                if number == len(addresses):
                    raise
        raise AssertionError("the last address either connects or raises")

    def _connect(self, address: tuple[str, int]) -> Broker:
        if address not in self._open:
            self._open[address] = Broker(*address)
        return self._open[address]

    def close(self) -> None:
        for broker in self._open.values():
            broker.close()

    @property
    def ids(self) -> list[int]:
        return sorted(self._addresses)

    def broker(self, node_id: int) -> Broker:
        if node_id not in self._addresses:
            known = ", ".join(map(str, self.ids))
            raise CommandError(f"there is no broker {node_id}", remedy=f"There are: {known}")
        return self._connect(self._addresses[node_id])

    def coordinator(self, kind: int, key: str) -> int:
        """The id of the broker that coordinates a group or a transactional id."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        answer = await_passing(
            lambda: self._first.ask(request, FindCoordinatorResponse).coordinators[0], lambda found: found.error_code
        )
        if answer.error_code:
            raise refusal(answer.error_code, f"cannot find the coordinator of {key!r}")
        return answer.node_id

    def partitions(self, topic: str | None = None) -> dict[Place, MetadataResponsePartition]:
        """Leaders and replicas of a topic's partitions; of all topics when none is named."""
        topics = None if topic is None else (MetadataRequestTopic(name=topic),)
        answer = self._first.ask(MetadataRequest(topics=topics, allow_auto_topic_creation=False), MetadataResponse)
        for row in answer.topics:
            if topic is not None and row.error_code:
                raise refusal(
                    row.error_code, f"there is no topic {topic!r}", remedy="See what is there with: moldau topic list"
                )
        return {
            Place(row.name or "", partition.partition_index): partition
            for row in answer.topics
            for partition in row.partitions
        }


@contextmanager
def open_cluster(target: Target) -> Iterator[Cluster]:
    """A cluster to ask, for as long as it is entered; a network that fails becomes the command's failure."""
    protocol = target.properties.get("security.protocol", "plaintext").lower()
    if protocol != "plaintext":
        raise CommandError(f"this command does not speak {protocol} yet", remedy="Use a listener without TLS and SASL")
    cluster = None
    try:
        cluster = Cluster(target)
        yield cluster
    except OSError as error:
        raise unreachable(target, (error.strerror or str(error) or type(error).__name__).lower()) from error
    finally:
        if cluster is not None:
            cluster.close()


def await_passing(ask: Callable[[], Answer], error_of: Callable[[Answer], int]) -> Answer:
    """Asks again while the error is one that passes by itself, up to the time that a request may take."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        answer = ask()
        if error_of(answer) not in PASSING or time.monotonic() > deadline:
            return answer
        time.sleep(ASK_AGAIN_S)


def refusal(code: int, problem: str, *, remedy: str = "") -> CommandError:
    """What a broker refused, in words: the problem, then its reason."""
    try:
        error = WireError(code)
    except ValueError:  # one that Moldau's own brokers never answer with
        return CommandError(f"{problem} (error {code})", remedy=remedy)
    return CommandError(f"{problem} ({error.name})", remedy=remedy)
