"""Requests that librdkafka's admin client lacks, over connections of the direct client: blocking, one at a time."""

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.admin.errors import AdminError, LoginFailed, NoSuchBroker, NoSuchTopic, Unreachable, refused
from moldau.client.admin.reachability import diagnose
from moldau.client.admin.security import read_security
from moldau.client.admin.target import CLIENT_ID, CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Target, reason_of
from moldau.client.direct.connection import Connection, ConnectionLost, UnsupportedByBroker
from moldau.client.direct.security import Security
from moldau.security.sasl_client import AuthenticationFailed
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

Response = TypeVar("Response")

GROUP, TRANSACTION = 0, 1  # kinds of coordinators
RETRY_S = 0.2
# A coordinator that is being found or is still loading, a transaction that is ending, a controller being elected.
TRANSIENT = {
    WireError.COORDINATOR_LOAD_IN_PROGRESS,
    WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.NOT_COORDINATOR,
    WireError.CONCURRENT_TRANSACTIONS,
    WireError.NOT_CONTROLLER,
}


class Cluster:
    """The brokers of a cluster; a connection is made when the first request to its broker is sent."""

    def __init__(self, target: Target, security: Security) -> None:
        self._open: dict[tuple[str, int], Connection] = {}
        self._security = security
        self._bootstrap = target.addresses()
        self._first = self._connect_first(self._bootstrap)
        answer = self._first.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False), MetadataResponse)
        self._addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}

    def _connect_first(self, addresses: Sequence[tuple[str, int]]) -> Connection:
        """The first address that accepts a connection."""
        for number, address in enumerate(addresses, start=1):
            try:
                return self._connect(address)
            except OSError:
                if number == len(addresses):
                    raise
        raise AssertionError("the last address either connects or raises")

    def _connect(self, address: tuple[str, int]) -> Connection:
        if address not in self._open or self._open[address].broken:
            self._open[address] = Connection(
                *address,
                self._security,
                client_id=CLIENT_ID,
                timeout_s=REQUEST_TIMEOUT_S,
                connect_timeout_s=CONNECT_TIMEOUT_S,
            )
        return self._open[address]

    def close(self) -> None:
        for broker in self._open.values():
            broker.close()

    @property
    def ids(self) -> list[int]:
        return sorted(self._addresses)

    def broker(self, node_id: int) -> Connection:
        if node_id not in self._addresses:
            raise NoSuchBroker(node_id, self.ids)
        return self._connect(self._addresses[node_id])

    def ask(self, request: object, response: type[Response]) -> Response:
        """Send a request that any broker can answer and that may be sent twice: another broker replaces a lost one."""
        try:
            return self._first.ask(request, response)
        except ConnectionLost:
            self._first = self._connect_first([*self._bootstrap, *self._addresses.values()])
        return self._first.ask(request, response)

    def coordinator(self, kind: int, key: str) -> int:
        """The id of the broker that coordinates a group or a transactional id."""
        request = FindCoordinatorRequest(key_type=kind, coordinator_keys=(key,))
        found = retry_transient(
            lambda: self._first.ask(request, FindCoordinatorResponse).coordinators[0], lambda row: row.error_code
        )
        if found.error_code:
            raise refused(found.error_code, f"cannot find the coordinator of {key!r}")
        return found.node_id

    def metadata(self, topics: Sequence[str] | None = None) -> MetadataResponse:
        """Of these topics, none of which is created; of all topics if None."""
        names = None if topics is None else tuple(MetadataRequestTopic(name=name) for name in topics)
        return self.ask(MetadataRequest(topics=names, allow_auto_topic_creation=False), MetadataResponse)

    def partitions(self, topic: str | None = None) -> dict[TopicPartition, MetadataResponsePartition]:
        """Leaders and replicas of a topic's partitions; of all topics if None."""
        answer = self.metadata(None if topic is None else [topic])
        for row in answer.topics:
            if topic is not None and row.error_code:
                unknown = row.error_code == WireError.UNKNOWN_TOPIC_OR_PARTITION
                raise NoSuchTopic(topic) if unknown else refused(row.error_code, f"cannot describe topic {topic!r}")
        return {
            TopicPartition(row.name or "", partition.partition_index): partition
            for row in answer.topics
            for partition in row.partitions
        }


@contextmanager
def open_cluster(target: Target) -> Iterator[Cluster]:
    """A cluster to send requests to. Failures of the network are raised as AdminError."""
    security = read_security(target.properties)
    cluster = None
    try:
        cluster = Cluster(target, security)
        yield cluster
    except AuthenticationFailed as failed:
        raise LoginFailed(str(failed)) from failed
    except ConnectionLost as lost:
        raise diagnose(target) or AdminError(str(lost)) from lost
    except UnsupportedByBroker as problem:
        raise AdminError(str(problem)) from problem
    except BrokenPipeError:  # of the caller's output
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC:  # of the caller's output, too
            raise
        raise diagnose(target) or Unreachable(target.bootstrap, reason_of(error)) from error
    finally:
        if cluster is not None:
            cluster.close()


def retry_transient(ask: Callable[[], Response], error_of: Callable[[Response], int]) -> Response:
    """Send again while the error is transient, up to REQUEST_TIMEOUT_S."""
    deadline = time.monotonic() + REQUEST_TIMEOUT_S
    while True:
        answer = ask()
        if error_of(answer) not in TRANSIENT or time.monotonic() > deadline:
            return answer
        time.sleep(RETRY_S)
