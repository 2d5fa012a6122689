"""OffsetStore: committed offsets by group and partition, and pending ones of open transactions.

Values are kept as the bytes of their records and unpacked on demand: loading goes through every commit in the log, and
a million of them must be fast and small. Rules are in `commit`, `fetch` and `expiration`, the format in `packed`.
"""

from collections.abc import Iterator, Mapping
from itertools import chain

from moldau.groups.offsets.packed import TOPIC_END, PackedPartition, split_key

NOTHING: Mapping[PackedPartition, bytes] = {}


class OffsetStore:
    """By group, then by partition. Only `apply` and `end_transaction` change it."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[PackedPartition, bytes]] = {}
        self._topics: dict[bytes, int] = {}  # number of committed offsets by topic
        # Commits of open transactions, by producer, in the order of the log. None: superseded by a later commit, so the
        # end of the transaction does not change the offset; until then the offset is unstable all the same.
        self._pending: dict[str, dict[PackedPartition, dict[int, bytes | None]]] = {}
        # By producer id: the groups and partitions with pending commits.
        self._open_transactions: dict[int, dict[tuple[str, PackedPartition], None]] = {}

    # -- reads

    def __len__(self) -> int:
        return sum(map(len, self._committed.values()))

    def get(self, group_id: str, packed: PackedPartition) -> bytes | None:
        return self._committed.get(group_id, NOTHING).get(packed)

    def committed(self, group_id: str) -> Mapping[PackedPartition, bytes]:
        """The committed offsets of a group."""
        return self._committed.get(group_id, NOTHING)

    def is_pending(self, group_id: str, packed: PackedPartition) -> bool:
        """Whether an open transaction may still change this offset."""
        return packed in self._pending.get(group_id, ())

    def in_transaction(self, group_id: str) -> bool:
        return group_id in self._pending

    def partitions(self, group_id: str) -> Iterator[PackedPartition]:
        """The partitions of a group with committed or pending offsets."""
        committed = self.committed(group_id)
        return chain(committed, (packed for packed in self._pending.get(group_id, ()) if packed not in committed))

    def topics(self) -> Iterator[bytes]:
        """The packed topics with committed or pending offsets."""
        pending = {packed[:TOPIC_END] for partitions in self._pending.values() for packed in partitions}
        return chain(self._topics, pending - self._topics.keys())

    def of_topic(self, topic: bytes) -> Iterator[tuple[str, PackedPartition]]:
        """The groups and partitions with offsets of a topic. Scans all offsets; topics are rarely deleted."""
        for group_id in dict.fromkeys(chain(self._committed, self._pending)):
            for packed in self.partitions(group_id):
                if packed.startswith(topic) and len(packed) == len(topic) - TOPIC_END:
                    yield group_id, packed

    # -- changes

    def apply(self, key: bytes, value: bytes | None, producer_id: int = -1) -> str:
        """Apply a record, or a tombstone; `producer_id` is that of its transaction. Returns the group id."""
        group_id, packed = split_key(key)
        if value is None:
            self._remove(group_id, packed)
        elif producer_id < 0:
            partitions = self._committed.get(group_id)
            if partitions is not None and packed in partitions:
                partitions[packed] = value  # the common case
            else:
                self._put(group_id, packed, value)
            if self._pending and group_id in self._pending:
                self._supersede(group_id, packed, None)
        else:
            waiting = self._pending.setdefault(group_id, {}).setdefault(packed, {})
            waiting.pop(producer_id, None)  # keeps the order of the log
            waiting[producer_id] = value
            self._open_transactions.setdefault(producer_id, {})[group_id, packed] = None
        return group_id

    def end_transaction(self, producer_id: int, commit: bool) -> None:
        """Commit or drop a producer's pending offsets."""
        for group_id, packed in self._open_transactions.pop(producer_id, ()):
            waiting = self._pending[group_id][packed]
            value = waiting[producer_id]
            if commit and value is not None:
                self._put(group_id, packed, value)
                self._supersede(group_id, packed, producer_id)
            del waiting[producer_id]
            if not waiting:
                self._drop_pending(group_id, packed)

    def _put(self, group_id: str, packed: PackedPartition, value: bytes) -> None:
        partitions = self._committed.get(group_id)
        if partitions is None:
            partitions = self._committed[group_id] = {}
        if packed not in partitions:
            topic = packed[:TOPIC_END]
            self._topics[topic] = self._topics.get(topic, 0) + 1
        partitions[packed] = value

    def _supersede(self, group_id: str, packed: PackedPartition, by: int | None) -> None:
        """Mark pending commits before this one as superseded; None: all of them."""
        waiting = self._pending[group_id].get(packed, {})
        for producer_id in waiting:
            if producer_id == by:
                break
            waiting[producer_id] = None

    def _remove(self, group_id: str, packed: PackedPartition) -> None:
        partitions = self._committed.get(group_id)
        if partitions is not None and partitions.pop(packed, None) is not None:
            topic = packed[:TOPIC_END]
            self._topics[topic] -= 1
            if not self._topics[topic]:
                del self._topics[topic]
            if not partitions:
                del self._committed[group_id]
        for producer_id in self._pending.get(group_id, {}).get(packed, ()):
            opened = self._open_transactions[producer_id]
            del opened[group_id, packed]
            if not opened:
                del self._open_transactions[producer_id]
        if self.is_pending(group_id, packed):
            self._drop_pending(group_id, packed)

    def _drop_pending(self, group_id: str, packed: PackedPartition) -> None:
        """Forget a partition without pending commits."""
        partitions = self._pending[group_id]
        del partitions[packed]
        if not partitions:
            del self._pending[group_id]
