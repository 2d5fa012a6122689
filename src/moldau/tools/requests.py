"""Requests that librdkafka's admin client lacks, through connections of the direct client. Blocking, one at a time."""

import errno
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TypeVar

from moldau.base.errors import WireError
from moldau.client.direct.connection import Connection, ConnectionLost, UnsupportedByBroker
from moldau.client.direct.sasl import AuthenticationFailed
from moldau.client.direct.security import Security
from moldau.tools.common.failure import CommandError, misused
from moldau.tools.connect import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Target, unreachable
from moldau.tools.places import Place
from moldau.tools.secured import read_security
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponsePartition,
)

Answer = TypeVar("Answer")

CLIENT_ID = "moldau-cli"
GROUP, TRANSACTION = 0, 1  # kinds of coordinators
ASK_AGAIN_S = 0.2
# Errors that pass by themselves: a coordinator that is being found or is still loading, a transaction that is
# ending, a controller that is being elected.
PASSING = {
    WireError.COORDINATOR_LOAD_IN_PROGRESS,
    WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.NOT_COORDINATOR,
    WireError.CONCURRENT_TRANSACTIONS,
    WireError.NOT_CONTROLLER,
}


class Cluster:
    """The brokers of a cluster, connected to when they are first needed."""

    def __init__(self, target: Target, security: Security) -> None:
        self._open: dict[tuple[str, int], Connection] = {}
        self._security = security
        self._bootstrap = target.addresses()
        if not self._bootstrap:
            raise misused("no broker address given", remedy="Give --bootstrap as HOST:PORT")
        self._first = self._connect_first(self._bootstrap)
        answer = self._first.ask(MetadataRequest(topics=(), allow_auto_topic_creation=False), MetadataResponse)
        self._addresses = {row.node_id: (row.host, row.port) for row in answer.brokers}

    def _connect_first(self, addresses: Sequence[tuple[str, int]]) -> Connection:
        """The first that can be had."""
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
            known = ", ".join(map(str, self.ids))
            raise CommandError(f"there is no broker {node_id}", remedy=f"There are: {known}")
        return self._connect(self._addresses[node_id])

    def ask(self, request: object, answer: type[Answer]) -> Answer:
        """What any broker can answer, and can be asked twice: if one is lost, another is asked."""
        try:
            return self._first.ask(request, answer)
        except ConnectionLost:
            self._first = self._connect_first([*self._bootstrap, *self._addresses.values()])
        return self._first.ask(request, answer)

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
    security = read_security(target.properties)
    cluster = None
    try:
        cluster = Cluster(target, security)
        yield cluster
    except (AuthenticationFailed, ConnectionLost, UnsupportedByBroker) as refused:
        raise CommandError(str(refused)) from refused
    except BrokenPipeError:  # of our output: whoever read it has left
        raise
    except OSError as error:
        if error.errno == errno.ENOSPC:  # of our output, too
            raise
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
