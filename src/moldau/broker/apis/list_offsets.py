"""ListOffsets 1–11: where a partition starts, ends, or was at a time.

2: isolation. 4: leader epochs. 7: -3, the largest timestamp. 8: -4, the first local offset. 9: -5, the last one in
remote storage. 11: -6, the first one not yet there. There is no remote storage, which has its own answers.
"""

import asyncio
from collections.abc import Iterator

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import Context
from moldau.log.log import Log
from moldau.replication.inspection import LARGEST_UNPACKED
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
NOTHING = (-1, -1)  # offset and timestamp where there is no such record


async def list_offsets(ctx: Context, request: ListOffsetsRequest, call: Call) -> ListOffsetsResponse:
    asked_twice = _twice(request)
    topics = []
    for topic in request.topics:
        answers = []
        for asked in topic.partitions:
            if (topic.name, asked.partition_index) in asked_twice:
                answers.append(_failure(asked, WireError.INVALID_REQUEST))
            else:
                committed = request.isolation_level == READ_COMMITTED
                answers.append(await _answer(ctx, topic.name, asked, call.version, committed=committed))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=tuple(answers)))
    return ListOffsetsResponse(topics=tuple(topics))


def _twice(request: ListOffsetsRequest) -> set[tuple[str, int]]:
    seen: set[tuple[str, int]] = set()
    return {key for key in _keys(request) if key in seen or seen.add(key)}  # type: ignore[func-returns-value]


def _keys(request: ListOffsetsRequest) -> Iterator[tuple[str, int]]:
    return ((topic.name, asked.partition_index) for topic in request.topics for asked in topic.partitions)


async def _answer(
    ctx: Context, topic: str, asked: ListOffsetsPartition, version: int, *, committed: bool
) -> ListOffsetsPartitionResponse:
    partition = ctx.replicas.get(topic, asked.partition_index)
    if partition is None:
        return _failure(asked, WireError.UNKNOWN_TOPIC_OR_PARTITION)
    if partition.offline:
        return _failure(asked, WireError.KAFKA_STORAGE_ERROR)
    fenced = partition.fenced(asked.current_leader_epoch)
    if fenced:
        return _failure(asked, fenced)
    if asked.timestamp < 0 and version < SINCE.get(asked.timestamp, version + 1):
        return _failure(asked, WireError.UNSUPPORTED_VERSION)
    try:
        offset, timestamp = await _find(partition, asked.timestamp, committed=committed)
    except CorruptRecords:
        return _failure(asked, WireError.CORRUPT_MESSAGE)
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


async def _find(partition: Partition, timestamp: int, *, committed: bool) -> tuple[int, int]:
    """Offset and timestamp. Only a search by time reads records, and does so in a thread."""
    log = partition.log
    match timestamp:
        case -1:
            return _end(partition, committed), -1
        case -2 | -4:
            return log.start_offset, -1
        case -5 | -6:
            return NOTHING
        case -3:
            found = await asyncio.to_thread(_latest_record, log)
        case _:
            found = await asyncio.to_thread(_first_record, log, timestamp)
    if found is None or found.offset >= _end(partition, committed):
        return NOTHING
    return found.offset, found.timestamp


def _end(partition: Partition, committed: bool) -> int:
    """Where reading ends: a search finds nothing that a consumer of this isolation level could not fetch."""
    return partition.last_stable_offset if committed else partition.high_watermark


def _latest_record(log: Log) -> Found | None:
    batch = log.batch_of_max_timestamp()
    return max_timestamp_record(batch, limit=LARGEST_UNPACKED) if batch else None


def _first_record(log: Log, timestamp: int) -> Found | None:
    """The first record from the log's start on with this time or a later one."""
    offset = log.start_offset
    while (batch := log.batch_at_time(timestamp, offset)) is not None:
        found = find_first(batch, timestamp, limit=LARGEST_UNPACKED)
        if found is not None and found.offset >= log.start_offset:
            return found
        offset = read_header(batch).last_offset + 1
    return None


def _failure(asked: ListOffsetsPartition, error: WireError) -> ListOffsetsPartitionResponse:
    return ListOffsetsPartitionResponse(partition_index=asked.partition_index, error_code=error)
