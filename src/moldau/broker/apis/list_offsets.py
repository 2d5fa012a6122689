"""ListOffsets 1–11: the earliest and latest offset of a partition, or the offset for a timestamp.

2: isolation. 4: leader epochs. 7: -3, the largest timestamp. 8: -4, the earliest local offset. 9: -5, the latest in
remote storage. 11: -6, the earliest not yet there. There is no remote storage: Kafka's answers without it apply.
"""

import asyncio
from collections.abc import Iterator
from enum import Enum

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.broker.leaders import absent
from moldau.log.log import Log
from moldau.replication.inspection import LARGEST_UNPACKED
from moldau.replication.leader import Leader
from moldau.replication.partition import Partition
from moldau.wire.batch import read_header
from moldau.wire.compression import CorruptRecords
from moldau.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from moldau.wire.records import Found, find_first, max_timestamp_record

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING = -1, -2, -3, -4, -5, -6
SINCE = {LATEST: 0, EARLIEST: 0, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING: 11}
EPOCH_SINCE = 4
READ_COMMITTED = 1
LAGGING_SINCE = 5  # the first version with an error of its own for a leader that is too new
NOTHING = (-1, -1)  # offset and timestamp where there is no such record


class View(Enum):
    """The requester, which decides how far it can read."""

    FOLLOWER = 0  # to the end of the log
    CONSUMER = 1  # to the high watermark
    COMMITTED = 2  # to the last stable offset


async def list_offsets(ctx: DataContext, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    asked_twice = _twice(request)
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            if (topic.name, asked.partition_index) in asked_twice:
                answers.append(_failure(asked, WireError.INVALID_REQUEST))
            else:
                view = _view(request)
                answers.append(await _answer(ctx, topic.name, asked, call.version, view))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers)))
    return ListOffsetsResponse(topics=tuple(topics))


def _twice(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    return {key for key in _keys(request) if key in seen or seen.add(key)}  # type: ignore[func-returns-value]


def _keys(request: ListOffsetsRequest) -> Iterator[tuple[str, int]]:
    return ((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)


async def _answer(
    ctx: DataContext, topic: str, asked: ListOffsetsPartition, version: int, view: View
) -> ListOffsetsPartitionResponse:
    partition = ctx.replicas.get(topic, asked.partition_index)
    if partition is None:
        return _failure(asked, absent(ctx, topic.encode(), asked.partition_index, by_id=False)[0])
    if partition.offline:
        return _failure(asked, WireError.KAFKA_STORAGE_ERROR)
    refused = partition.fenced(asked.current_leader_epoch) or partition.not_led()
    if refused:
        return _failure(asked, refused)
    if asked.timestamp < 0 and version < SINCE.get(asked.timestamp, version + 1):
        return _failure(asked, WireError.UNSUPPORTED_VERSION)
    try:
        found = await _find(partition, asked.timestamp, view)
    except CorruptRecords:
        return _failure(asked, WireError.CORRUPT_MESSAGE)
    if found is None:
        lagging = WireError.OFFSET_NOT_AVAILABLE if version >= LAGGING_SINCE else WireError.LEADER_NOT_AVAILABLE
        return _failure(asked, lagging)
    offset, timestamp = found
    epoch = -1
    if version >= EPOCH_SINCE:
        epoch = partition.leader_epoch if asked.timestamp == LATEST else partition.epoch_of(offset)
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index,
        error_code=WireError.NONE,
        timestamp=timestamp,
        offset=offset,
        leader_epoch=epoch,
    )


async def _find(partition: Partition, timestamp: int, view: View) -> tuple[int, int] | None:
    """Offset and timestamp; None: a new leader does not know yet. A search by timestamp reads records, in a thread."""
    log = partition.log
    match timestamp:
        case -1:
            return None if _lagging(partition, view) else (_end(partition, view), -1)
        case -2 | -4:
            return log.start_offset, -1
        case -5 | -6:
            return NOTHING
        case -3:
            found = await asyncio.to_thread(_latest_record, log)
        case _:
            found = await asyncio.to_thread(_first_record, log, timestamp)
    if found is None or found.offset >= _end(partition, view):
        return None if _lagging(partition, view) else NOTHING
    return found.offset, found.timestamp


def _view(request: ListOffsetsRequest) -> View:
    if request.replica_id >= 0:
        return View.FOLLOWER
    return View.COMMITTED if request.isolation_level == READ_COMMITTED else View.CONSUMER


def _lagging(partition: Partition, view: View) -> bool:
    """Whether a new leader's high watermark may be behind the old leader's: offsets must not go back."""
    role = partition.role
    return view is not View.FOLLOWER and isinstance(role, Leader) and role.high_watermark < role.isr.epoch_start


def _end(partition: Partition, view: View) -> int:
    """The first offset that the requester cannot fetch; a search by timestamp finds nothing from there on."""
    if view is View.FOLLOWER:
        return partition.log.end_offset
    return partition.last_stable_offset if view is View.COMMITTED else partition.high_watermark


def _latest_record(log: Log) -> Found | None:
    batch = log.segments.batch_of_max_timestamp()
    return max_timestamp_record(batch, limit=LARGEST_UNPACKED) if batch else None


def _first_record(log: Log, timestamp: int) -> Found | None:
    """The first record with this timestamp or a later one."""
    offset = log.start_offset
    while (batch := log.segments.batch_at_time(timestamp, offset)) is not None:
        found = find_first(batch, timestamp, limit=LARGEST_UNPACKED)
        if found is not None and found.offset >= log.start_offset:
            return found
        offset = read_header(batch).last_offset + 1
    return None


def _failure(asked: ListOffsetsPartition, error: WireError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)
