"""Plan of a fetch response, by index arithmetic: slices of files, or the error of a partition. Changes nothing."""

import os
from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from moldau.base.errors import WireError
from moldau.base.slices import FileSlice
from moldau.broker.leaders import Leader as CurrentLeader
from moldau.log.segment import CorruptLogError
from moldau.replication.partition import Partition
from moldau.wire.batch import PREFIX_SIZE
from moldau.wire.hot.fetch import FetchPartition, FetchResult

READ_COMMITTED: Final = 1
MAX_WALKED: Final = 1_000  # batches of a slice: of many small ones an incomplete one does not matter

_LENGTH: Final = Struct(">8xi")  # of a batch, without its prefix

Asked = Sequence[tuple[bytes, FetchPartition]]  # by topic name or id, as the request names topics


class Plan(NamedTuple):
    results: list[tuple[bytes, FetchResult]]
    partitions: list[Partition]
    size: int
    ready: bool  # there is more to tell than records: an error, another replica to read from
    unreadable: Sequence[tuple[Partition, Exception]] = ()  # partitions whose logs turned out corrupt
    throttled_bytes: int = 0  # of the size: for followers that are throttled


def whole_batches(plan: Plan) -> Plan:
    """The plan without incomplete batches at the ends of slices: a client drops them, and they count as sent."""
    for _, result in plan.results:
        if result.records is not None:
            result.records = _whole(result.records)
    size = sum(result.records.length for _, result in plan.results if result.records is not None)
    return plan._replace(size=size)


def _whole(piece: FileSlice) -> FileSlice:
    end, stop = piece.position, piece.position + piece.length
    for _ in range(MAX_WALKED):
        size = 0
        if end + PREFIX_SIZE <= stop:
            size = int(_LENGTH.unpack(os.pread(piece.file.fd, PREFIX_SIZE, end))[0]) + PREFIX_SIZE
        if size <= PREFIX_SIZE or end + size > stop:
            break
        end += size
    else:
        return piece
    return (
        FileSlice(piece.file, piece.position, end - piece.position, piece.hot) if piece.position < end < stop else piece
    )


def failure(index: int, code: WireError, leader: CurrentLeader | None = None) -> FetchResult:
    return FetchResult(index, code, -1, -1, -1, leader=leader)


def unreadable(index: int, problem: Exception) -> FetchResult:
    """A corrupt log is an error of its partition; the others in the request are answered."""
    corrupt = isinstance(problem, CorruptLogError)
    return failure(index, WireError.CORRUPT_MESSAGE if corrupt else WireError.KAFKA_STORAGE_ERROR)


def rejection(partition: Partition, row: FetchPartition) -> FetchResult | None:
    """The answer to a wrong leader epoch, a diverging epoch or an offset out of range; None: there is nothing wrong."""
    log = partition.log
    if row.leader_epoch != -1 and row.leader_epoch != partition.leader_epoch:
        return failure(row.partition, partition.fenced(row.leader_epoch))
    if row.last_fetched_epoch >= 0:
        epoch, end = partition.end_offset_for_epoch(row.last_fetched_epoch)
        if end < 0:
            return failure(row.partition, WireError.OFFSET_OUT_OF_RANGE)
        if epoch < row.last_fetched_epoch or end < row.offset:
            high = partition.high_watermark
            stable = log.last_stable_offset(high)
            return FetchResult(row.partition, 0, high, stable, log.start_offset, None, (epoch, end))
    if not log.start_offset <= row.offset <= log.end_offset:
        return failure(row.partition, WireError.OFFSET_OUT_OF_RANGE)
    return None


def committed_records(
    partition: Partition, row: FetchPartition, room: int, isolation: int, *, whole_first: bool
) -> FetchResult:
    """Records for a consumer: up to the high watermark, or with read_committed up to the last stable offset."""
    log = partition.log
    high = partition.high_watermark
    stable = log.last_stable_offset(high)
    read_committed = isolation == READ_COMMITTED
    upper = stable if read_committed else high
    records = None
    if row.offset < upper and (room > 0 or whole_first):
        records = log.locate(row.offset, min(room, row.most_bytes), upper, whole_first=whole_first)
    if not read_committed:
        return FetchResult(row.partition, 0, high, stable, log.start_offset, records)
    aborted = [each[:2] for each in log.aborted_in(row.offset, records, stable)] if records else []
    return FetchResult(row.partition, 0, high, stable, log.start_offset, records, None, aborted)


def records_to_end(partition: Partition, row: FetchPartition, room: int, *, whole_first: bool) -> FetchResult:
    """Records for a follower: up to the log end offset."""
    log = partition.log
    high = partition.high_watermark
    records = None
    if row.offset < log.end_offset and (room > 0 or whole_first):
        records = log.locate(row.offset, min(room, row.most_bytes), log.end_offset, whole_first=whole_first)
    return FetchResult(row.partition, 0, high, log.last_stable_offset(high), log.start_offset, records)
