"""Wait for new records of many partitions: one Fetch per leader, which the broker answers when there are some.

The records of the responses are not used: each Fetch asks for as few bytes as possible. A watch finds no errors: what
it cannot watch, or is refused, counts as news, and the next request for offsets tells the reason.
"""

import select
import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from moldau.base.ids import TopicPartition
from moldau.client.direct.connection import Connection, InFlightRequest
from moldau.client.direct.metadata import NETWORK, Cluster, Leader, Topic
from moldau.client.direct.offsets import READ_UNCOMMITTED
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic

BY_NAME = 12  # the last version of Fetch with topic names
AT_BROKER_MS = 1000  # a Fetch stays open so long, over many calls of `wait`
LEAST_BYTES = 1  # a broker returns one whole batch at most

Positions = Mapping[TopicPartition, int]


@dataclass(slots=True)
class _Open:
    """A connection to a leader, and the Fetch that it has not answered yet; None if it has."""

    connection: Connection
    request: InFlightRequest[FetchResponse] | None
    positions: Positions


class Watch:
    """Not thread-safe. Has its own connections; `close` closes them."""

    def __init__(self, cluster: Cluster, isolation: int = READ_UNCOMMITTED) -> None:
        self._cluster = cluster
        self._isolation = isolation
        self._open: dict[int, _Open] = {}  # by leader

    def close(self) -> None:
        for each in self._open.values():
            each.connection.close()
        self._open.clear()

    def wait(self, positions: Positions, seconds: float) -> bool:
        """Wait until a partition may have records from its position on; False if none came within this time."""
        deadline = time.monotonic() + seconds
        wanted = self._by_leader(positions)
        if wanted is None:
            return True
        for node_id in self._open.keys() - wanted.keys():
            self._open.pop(node_id).connection.close()
        try:
            for node_id, part in wanted.items():
                self._ask(node_id, part)
            return self._answered(deadline)
        except NETWORK:
            self.close()
            return True

    def _by_leader(self, positions: Positions) -> dict[int, Positions] | None:
        """None if a partition has no known leader."""
        leaders = {}
        for tp in positions:
            leader = self._cluster.leader(tp, self._cluster.retries(0))
            if not isinstance(leader, Leader):
                return None
            leaders[tp] = leader.node_id
        return {
            node_id: {tp: positions[tp] for tp in listed}
            for node_id, listed in groupby(sorted(positions, key=lambda tp: (leaders[tp], tp)), key=leaders.__getitem__)
        }

    def _ask(self, node_id: int, positions: Positions) -> None:
        """Send a Fetch, unless one with these positions is open."""
        there = self._open.pop(node_id, None)
        if there is not None and there.request is not None:
            if there.positions == positions:
                self._open[node_id] = there
                return
            if there.connection.has_response:
                there.connection.forget(there.request)
            else:  # it may take long
                there.connection.close()
        if there is None or there.connection.stale:
            connection = self._cluster.dedicated_connection(node_id)
        else:
            connection = there.connection
        self._open[node_id] = _Open(connection, self._send(connection, positions), positions)

    def _send(self, connection: Connection, positions: Positions) -> InFlightRequest[FetchResponse]:
        topics = []
        by_name = False
        for name, listed in groupby(sorted(positions), key=lambda tp: tp.topic):
            topic = self._cluster.topic(name)
            assert isinstance(topic, Topic), "its partitions have leaders"
            by_name = by_name or not topic.topic_id.int
            partitions = tuple(
                FetchPartition(
                    partition=tp.partition,
                    current_leader_epoch=topic.leaders[tp.partition].epoch,
                    fetch_offset=positions[tp],
                    partition_max_bytes=LEAST_BYTES,
                )
                for tp in listed
            )
            topics.append(FetchTopic(topic=name, topic_id=topic.topic_id, partitions=partitions))
        request = FetchRequest(
            max_wait_ms=AT_BROKER_MS,
            min_bytes=1,
            max_bytes=LEAST_BYTES,
            isolation_level=self._isolation,
            topics=tuple(topics),
        )
        return connection.send(request, FetchResponse, **({"until": BY_NAME} if by_name else {}))

    def _answered(self, deadline: float) -> bool:
        while True:
            for each in self._open.values():
                if each.connection.has_response and self._has_news(each):
                    return True
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            waiting = select.poll()
            for each in self._open.values():
                waiting.register(each.connection, select.POLLIN)
            waiting.poll(left * 1000)

    def _has_news(self, answered: _Open) -> bool:
        """Read a response; without records or an error, which means that nothing came, send the Fetch again."""
        assert answered.request is not None, "it has a response"
        response = answered.connection.receive(answered.request)
        answered.request = None
        parts = [part for topic in response.responses for part in topic.partitions]
        if response.error_code or any(part.error_code or part.records for part in parts):
            return True
        answered.request = self._send(answered.connection, answered.positions)
        return False
