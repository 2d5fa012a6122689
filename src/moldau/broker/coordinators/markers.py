"""Transaction markers: written to partitions that this broker leads, sent to the leaders of the others.

Used by the transaction coordinator and by WriteTxnMarkers. What a failed marker means is for them to say. A marker of
the offsets topic is told to the group shard there as it is appended, so that what follows it in the log follows it in
the shard as well.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from moldau.base.errors import WireError
from moldau.base.later import Later, NowOrLater
from moldau.broker.coordinators.outcomes import failed
from moldau.broker.internal_topics import OFFSETS
from moldau.metadata.image import NO_BROKER, ClusterImage
from moldau.replication.partition import Outcome
from moldau.replication.replicas import Replicas

Told = Callable[[WireError], None]


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class OffsetShards(Protocol):
    """As much of the group coordinator as markers concern."""

    def takes_markers(self, index: int) -> bool: ...
    def marker_written(
        self, index: int, producer_id: int, commit: bool, outcome: NowOrLater[Outcome], told: Told
    ) -> None: ...


class MarkerPost(Protocol):
    """Takes markers to other brokers."""

    def send_marker(self, broker_id: int, topic: str, index: int, marker: Marker, told: Told) -> None: ...


class Markers:
    def __init__(
        self,
        replicas: Replicas,
        groups: OffsetShards,
        image: Callable[[], ClusterImage],
        now: Callable[[], int],
        node_id: int,
        post: MarkerPost,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._image = image
        self._now = now
        self._node_id = node_id
        self._post = post

    def send(self, topic: str, index: int, marker: Marker, told: Told) -> None:
        """Write a marker wherever its partition is led; `told` hears the outcome once, now or later.

        UNKNOWN_TOPIC_OR_PARTITION: there is no such partition in the cluster.
        """
        state = self._image().partition(topic, index)
        if state is None:
            told(WireError.UNKNOWN_TOPIC_OR_PARTITION)
        elif state.leader == self._node_id:
            self.write(topic, index, marker, told)
        elif state.leader == NO_BROKER:
            told(WireError.LEADER_NOT_AVAILABLE)
        else:
            self._post.send_marker(state.leader, topic, index, marker, told)

    def write(self, topic: str, index: int, marker: Marker, told: Told) -> None:
        """Write a marker here. `told` hears the outcome once: before this returns, or when the marker is committed.

        UNKNOWN_TOPIC_OR_PARTITION: there is no such partition. NOT_LEADER_OR_FOLLOWER: not here, or not yet.
        """
        partition = self._replicas.get(topic, index)
        if partition is None or not partition.leads or (topic == OFFSETS and not self._groups.takes_markers(index)):
            missing = self._image().partition(topic, index) is None
            told(WireError.UNKNOWN_TOPIC_OR_PARTITION if missing else WireError.NOT_LEADER_OR_FOLLOWER)
            return
        outcome = partition.write_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.commit,
            marker.coordinator_epoch,
            marker.transaction_version,
            self._now(),
        )
        if failed(outcome) is not None:
            told(_error_of(outcome))
        elif topic == OFFSETS:
            self._groups.marker_written(index, marker.producer_id, marker.commit, outcome, told)
        elif isinstance(outcome, Later):
            outcome.then(lambda settled: told(_error_of(settled)))
        else:
            told(WireError.NONE)


def _error_of(outcome: NowOrLater[Outcome]) -> WireError:
    refusal = failed(outcome)
    return WireError.NONE if refusal is None else refusal.error
