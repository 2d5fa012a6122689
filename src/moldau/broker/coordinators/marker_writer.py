"""MarkerWriter: transaction markers, written to partitions that this broker leads and sent to the leaders of others.

Used by the transaction coordinator and by WriteTxnMarkers. A marker in the offsets topic is also applied to the group
shard as it is appended, so that the shard sees markers and commits in the order of the log.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from moldau.base.errors import WireError
from moldau.base.ids import Epoch, TopicPartition
from moldau.base.later import Later, NowOrLater
from moldau.broker.coordinators.outcomes import failed
from moldau.broker.internal_topics import OFFSETS
from moldau.metadata.image import NO_BROKER, ClusterImage
from moldau.replication.appender import Outcome
from moldau.replication.replicas import Replicas

MarkerCallback = Callable[[WireError], None]


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: Epoch
    commit: bool
    coordinator_epoch: Epoch
    transaction_version: int


class OffsetShards(Protocol):
    """The group coordinator, as far as markers concern it."""

    def takes_markers(self, index: int) -> bool: ...
    def marker_written(
        self, index: int, producer_id: int, commit: bool, outcome: NowOrLater[Outcome], done: MarkerCallback
    ) -> None: ...


class RemoteMarkers(Protocol):
    """Sends markers to other brokers."""

    def send_marker(self, broker_id: int, partition: TopicPartition, marker: Marker, done: MarkerCallback) -> None: ...


class MarkerWriter:
    def __init__(
        self,
        replicas: Replicas,
        groups: OffsetShards,
        image: Callable[[], ClusterImage],
        now: Callable[[], int],
        node_id: int,
        sender: RemoteMarkers,
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._image = image
        self._now = now
        self._node_id = node_id
        self._sender = sender

    def send(self, partition: TopicPartition, marker: Marker, done: MarkerCallback) -> None:
        """Write a marker on the partition's leader. Call `done` once with the outcome, now or later.

        UNKNOWN_TOPIC_OR_PARTITION: the cluster has no such partition.
        """
        state = self._image().partition(*partition)
        if state is None:
            done(WireError.UNKNOWN_TOPIC_OR_PARTITION)
        elif state.leader == self._node_id:
            self.write(partition, marker, done)
        elif state.leader == NO_BROKER:
            done(WireError.LEADER_NOT_AVAILABLE)
        else:
            self._sender.send_marker(state.leader, partition, marker, done)

    def write(self, partition: TopicPartition, marker: Marker, done: MarkerCallback) -> None:
        """Write a marker to this broker's log. Call `done` once: before this returns, or when the marker is committed.

        UNKNOWN_TOPIC_OR_PARTITION: the cluster has no such partition. NOT_LEADER_OR_FOLLOWER: this broker does not lead
        it, or its group shard is still loading.
        """
        topic, index = partition
        led = self._replicas.get(topic, index)
        if led is None or not led.leads or (topic == OFFSETS and not self._groups.takes_markers(index)):
            missing = self._image().partition(topic, index) is None
            done(WireError.UNKNOWN_TOPIC_OR_PARTITION if missing else WireError.NOT_LEADER_OR_FOLLOWER)
            return
        outcome = led.appender.write_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.commit,
            marker.coordinator_epoch,
            marker.transaction_version,
            self._now(),
        )
        if failed(outcome) is not None:
            done(_error_of(outcome))
        elif topic == OFFSETS:
            self._groups.marker_written(index, marker.producer_id, marker.commit, outcome, done)
        elif isinstance(outcome, Later):
            outcome.then(lambda settled: done(_error_of(settled)))
        else:
            done(WireError.NONE)


def _error_of(outcome: NowOrLater[Outcome]) -> WireError:
    refusal = failed(outcome)
    return WireError.NONE if refusal is None else refusal.error
