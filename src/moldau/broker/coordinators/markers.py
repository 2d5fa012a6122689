"""Transaction markers for partitions of this broker: written, and told to the groups where they concern offsets.

Used by the transaction coordinator and by WriteTxnMarkers. What a failed marker means is for them to say.
"""

from collections.abc import Callable
from typing import NamedTuple, Protocol

from moldau.base.errors import Refusal, WireError
from moldau.broker.internal_topics import OFFSETS
from moldau.metadata.image import ClusterImage
from moldau.replication.partition import Later, Outcome
from moldau.replication.replicas import Replicas


class Marker(NamedTuple):
    producer_id: int
    producer_epoch: int
    commit: bool
    coordinator_epoch: int
    transaction_version: int


class OffsetShards(Protocol):
    """As much of the group coordinator as markers concern."""

    def takes_markers(self, index: int) -> bool: ...
    def marker_written(self, index: int, producer_id: int, commit: bool) -> None: ...


class Markers:
    def __init__(
        self,
        replicas: Replicas,
        groups: OffsetShards,
        image: Callable[[], ClusterImage],
        now: Callable[[], int],
    ) -> None:
        self._replicas = replicas
        self._groups = groups
        self._image = image
        self._now = now

    def write(self, topic: str, index: int, marker: Marker, told: Callable[[WireError], None]) -> None:
        """`told` hears the outcome once: before this returns, or later if the disk is waited for.

        UNKNOWN_TOPIC_OR_PARTITION: there is no such partition. NOT_LEADER_OR_FOLLOWER: it is still being opened.
        """
        partition = self._replicas.get(topic, index)
        if partition is None or (topic == OFFSETS and not self._groups.takes_markers(index)):
            known = self._image().topics.get(topic)
            missing = known is None or not 0 <= index < len(known.partitions)
            told(WireError.UNKNOWN_TOPIC_OR_PARTITION if missing else WireError.NOT_LEADER_OR_FOLLOWER)
            return

        def settled(outcome: Outcome) -> None:
            if isinstance(outcome, Refusal):
                told(outcome.error)
                return
            if topic == OFFSETS:
                self._groups.marker_written(index, marker.producer_id, marker.commit)
            told(WireError.NONE)

        outcome = partition.write_marker(
            marker.producer_id,
            marker.producer_epoch,
            marker.commit,
            marker.coordinator_epoch,
            marker.transaction_version,
            self._now(),
        )
        if isinstance(outcome, Later):
            outcome.tell = settled
        else:
            settled(outcome)
