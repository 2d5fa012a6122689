"""How far a group is behind, per partition: in records, and as the age of the first record it has not consumed.

Kafka has no request for that age, so the batch with that record is read. All partitions of a broker are asked in one
Fetch; a batch that is larger than the Fetch allows is asked for again with more room.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import groupby

from moldau.base.errors import WireError
from moldau.base.ids import Offset, TopicPartition
from moldau.client.admin.clients import Admin
from moldau.client.admin.cluster import Cluster
from moldau.client.admin.group_offsets import read_committed, read_offsets
from moldau.client.admin.groups import Group
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import BY_NAME, Batches, whole_batches, without_aborted
from moldau.wire.batch import CONTROL
from moldau.wire.compression import CorruptRecords
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from moldau.wire.messages.metadata import MetadataResponse
from moldau.wire.records import iter_records

# Room for a batch of each partition, round by round. Brokers send the first partition's batch whatever its size, so
# every round finds at least one.
ROUND_BYTES = (64 * 1024, 1_100_000)
RESPONSE_BYTES = 32 * 1024 * 1024
DECOMPRESSED_BYTES = 64 * 1024 * 1024
LONGEST_S = 5.0
READ_COMMITTED = 1


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a group has come in a partition; None where it is unknown or there is none."""

    partition: TopicPartition
    committed: Offset | None
    end: Offset | None
    lag: int | None
    lag_seconds: float | None
    owner: str | None


def read_progress(admin: Admin, cluster: Cluster, group: Group) -> list[Progress]:
    """All partitions that the group has committed or owns."""
    committed = read_committed(admin, group.name)
    owners = group.owners()
    partitions = sorted({*committed, *owners})
    ends = read_offsets(admin, partitions, "latest")
    lags = {tp: lag_of(committed.get(tp), ends.get(tp)) for tp in partitions}
    now_ms = int(time.time() * 1000)
    ages = read_ages(cluster, {tp: committed[tp] for tp in partitions if lags[tp]}, now_ms)
    return [
        Progress(
            tp,
            committed.get(tp),
            ends.get(tp),
            lags[tp],
            0.0 if lags[tp] == 0 else ages.get(tp),
            owners.get(tp),
        )
        for tp in partitions
    ]


def lag_of(committed: Offset | None, end: Offset | None) -> int | None:
    return None if committed is None or end is None else max(0, end - committed)


def read_ages(cluster: Cluster, offsets: Mapping[TopicPartition, Offset], now_ms: int) -> dict[TopicPartition, float]:
    """Seconds since the first record from an offset on was written; 0 where there is none.

    Partitions without an answer of their leader, or without a timestamp, are left out.
    """
    if not offsets:
        return {}
    metadata = cluster.metadata(sorted({tp.topic for tp in offsets}))
    leaders = {
        TopicPartition(topic.name or "", row.partition_index): row.leader_id
        for topic in metadata.topics
        for row in topic.partitions
    }
    ages: dict[TopicPartition, float] = {}
    until = time.monotonic() + LONGEST_S
    for leader in sorted({leaders.get(tp, -1) for tp in offsets} - {-1}):
        led = {tp: offset for tp, offset in offsets.items() if leaders.get(tp) == leader}
        try:
            ages |= _LeaderReader(cluster, leader, metadata, led, now_ms).read(until)
        except OSError:  # this broker is gone: the ages of the others count all the same
            continue
    return ages


class _LeaderReader:
    """Reads the ages of partitions that one broker leads."""

    def __init__(
        self,
        cluster: Cluster,
        leader: int,
        metadata: MetadataResponse,
        offsets: Mapping[TopicPartition, Offset],
        now_ms: int,
    ) -> None:
        self._broker = cluster.broker(leader)
        self._ids = {row.name or "": row.topic_id for row in metadata.topics}
        self._names = {row.topic_id: row.name or "" for row in metadata.topics}
        self._wanted = dict(offsets)
        self._now_ms = now_ms
        self._ages: dict[TopicPartition, float] = {}

    def read(self, until: float) -> dict[TopicPartition, float]:
        rooms = list(ROUND_BYTES)
        while self._wanted and time.monotonic() < until:
            before = dict(self._wanted)
            for tp, row in self._fetch(rooms[0]):
                if tp in self._wanted:
                    self._take(tp, row)
            if len(rooms) > 1:
                rooms.pop(0)
            elif (
                self._wanted == before
            ):  # the broker sends nothing: its last stable offset went back, or it is not well
                break
        return self._ages

    def _fetch(self, room: int) -> list[tuple[TopicPartition, PartitionData]]:
        topics = tuple(
            FetchTopic(
                topic=name,
                topic_id=self._ids[name],
                partitions=tuple(
                    FetchPartition(partition=tp.partition, fetch_offset=self._wanted[tp], partition_max_bytes=room)
                    for tp in listed
                ),
            )
            for name, listed in groupby(sorted(self._wanted), key=lambda tp: tp.topic)
        )
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, max_bytes=RESPONSE_BYTES, isolation_level=READ_COMMITTED, topics=topics
        )
        by_id = all(topic.topic_id.int for topic in topics)
        answer = self._broker.ask(request, FetchResponse, **({} if by_id else {"until": BY_NAME}))
        if answer.error_code:
            self._wanted.clear()
        return [
            (TopicPartition(topic.topic or self._names.get(topic.topic_id, ""), row.partition_index), row)
            for topic in answer.responses
            for row in topic.partitions
        ]

    def _take(self, tp: TopicPartition, row: PartitionData) -> None:
        if row.error_code == WireError.OFFSET_OUT_OF_RANGE:  # deleted meanwhile: the first record that is left counts
            earliest = self._earliest(tp)
            if earliest is None or earliest <= self._wanted[tp]:
                del self._wanted[tp]
            else:
                self._wanted[tp] = earliest
            return
        found = Failure(0, "", "") if row.error_code else whole_batches(row.records or b"")
        if isinstance(found, Failure):
            del self._wanted[tp]
            return
        position = self._wanted[tp]
        following = found[-1][0].last_offset + 1 if found else position
        readable = row.last_stable_offset if row.last_stable_offset >= 0 else row.high_watermark
        try:
            timestamp_ms = _first_timestamp(without_aborted(found, row.aborted_transactions or ()), position)
        except CorruptRecords:
            del self._wanted[tp]
            return
        if timestamp_ms is None and max(position, following) < readable:
            self._wanted[tp] = max(position, following)  # too large for this round, or markers only
            return
        del self._wanted[tp]
        if timestamp_ms is None:  # markers of transactions count as lag, and are no records
            self._ages[tp] = 0.0
        elif timestamp_ms > 0:
            self._ages[tp] = max(0, self._now_ms - timestamp_ms) / 1000

    def _earliest(self, tp: TopicPartition) -> Offset | None:
        partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=-2)
        request = ListOffsetsRequest(replica_id=-1, topics=(ListOffsetsTopic(name=tp.topic, partitions=(partition,)),))
        (topic,) = self._broker.ask(request, ListOffsetsResponse).topics
        return topic.partitions[0].offset if not topic.partitions[0].error_code else None


def _first_timestamp(batches: Batches, position: Offset) -> int | None:
    for header, batch in batches:
        if header.last_offset < position or header.attributes & CONTROL:
            continue
        for record in iter_records(batch, limit=DECOMPRESSED_BYTES):
            if record.offset >= position:
                return record.timestamp
    return None
