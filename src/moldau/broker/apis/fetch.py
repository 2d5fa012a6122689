"""Fetch 4–18: plan by index arithmetic, wait if there is too little, answer with slices of files.

7: fetch sessions. 9: leader epochs. 11: the client's rack. 12: flexible, divergence by epoch. 13: topic ids.
15: the replica's id is a tag. 16–18: tags for clusters.
"""

import logging
from typing import NamedTuple

from moldau.base.errors import WireError
from moldau.broker.context import Context
from moldau.broker.sessions import Fetch
from moldau.log.segment import CorruptLogError
from moldau.net.reply import BadRequest, Parked, Parts
from moldau.replication.partition import Partition
from moldau.replication.waiters import FetchWaiter
from moldau.wire.hot import FETCH_BY_ID, FetchAsk, FetchPartition, FetchResult, pack_fetch, read_fetch

logger = logging.getLogger("moldau.broker")

READ_COMMITTED = 1
UNKNOWN_TOPIC_ID = WireError.UNKNOWN_TOPIC_ID
UNKNOWN_TOPIC_OR_PARTITION = WireError.UNKNOWN_TOPIC_OR_PARTITION


class Plan(NamedTuple):
    results: list[tuple[bytes, FetchResult]]
    partitions: list[Partition]
    size: int
    failed: bool


def fetch(ctx: Context, body: memoryview, at: int, version: int, correlation: int) -> "Parts | Parked":
    ask = read_fetch(body, at, version)
    opened = ctx.sessions.open(ask, version, ctx.now())
    if opened.asked is None:
        return pack_fetch(version, correlation, opened.error, 0, [])
    plan = plan_fetch(ctx, ask, opened.asked, version)
    if plan.failed or plan.size >= ask.min_bytes or ask.max_wait_ms <= 0 or not opened.asked:
        return _answer(opened, plan, version, correlation)
    return _park(ctx, opened, plan, ask, version, correlation)


def _park(ctx: Context, opened: Fetch, plan: Plan, ask: FetchAsk, version: int, correlation: int) -> Parked:
    def answer() -> None:
        try:
            later = plan_fetch(ctx, ask, opened.asked or [], version)
            parked.resolve(_answer(opened, later, version, correlation))
        except Exception:
            logger.exception("answering a fetch that had waited failed")
            parked.resolve(BadRequest("an internal error"))

    missing = ask.min_bytes - plan.size
    committed = ask.isolation == READ_COMMITTED
    waiter = FetchWaiter(list(plan.partitions), missing, ask.max_wait_ms, answer, committed=committed)
    parked = Parked(waiter.cancel)
    return parked


def _answer(opened: Fetch, plan: Plan, version: int, correlation: int) -> Parts:
    return pack_fetch(version, correlation, 0, opened.session_id, opened.answer(plan.results))


def plan_fetch(ctx: Context, ask: FetchAsk, asked: list[tuple[bytes, FetchPartition]], version: int) -> Plan:
    topics = ctx.replicas.by_id if version >= FETCH_BY_ID else ctx.replicas.by_name
    room = min(ask.max_bytes, ctx.config.fetch_max_bytes)
    committed = ask.isolation == READ_COMMITTED
    results: list[tuple[bytes, FetchResult]] = []
    partitions: list[Partition] = []
    size = 0
    failed = False
    for token, row in asked:
        partition = ctx.replicas.find(topics, token, row.partition)
        if partition is None:
            unknown_id = version >= FETCH_BY_ID and token not in topics
            result = _failure(row.partition, UNKNOWN_TOPIC_ID if unknown_id else UNKNOWN_TOPIC_OR_PARTITION)
        elif ask.replica_id >= 0:
            result = _failure(row.partition, WireError.NOT_LEADER_OR_FOLLOWER)
        else:
            result = _read_or_fail(partition, row, room - size, committed, whole_first=size == 0)
            partitions.append(partition)
        if result.records is not None:
            size += result.records.length
        failed = failed or result.error != 0 or result.diverging is not None
        results.append((token, result))
    return Plan(results, partitions, size, failed)


def _failure(index: int, code: WireError) -> FetchResult:
    return FetchResult(index, code, -1, -1, -1)


def _read_or_fail(
    partition: Partition, row: FetchPartition, room: int, committed: bool, *, whole_first: bool
) -> FetchResult:
    """A damaged log is an error of its partition; the others in the request are answered."""
    try:
        return _read(partition, row, room, committed, whole_first=whole_first)
    except (CorruptLogError, OSError) as problem:
        logger.error("reading %s-%d failed: %s", partition.topic, partition.index, problem)
        corrupt = isinstance(problem, CorruptLogError)
        return _failure(row.partition, WireError.CORRUPT_MESSAGE if corrupt else WireError.KAFKA_STORAGE_ERROR)


def _read(partition: Partition, row: FetchPartition, room: int, committed: bool, *, whole_first: bool) -> FetchResult:
    if partition.offline:
        return _failure(row.partition, WireError.KAFKA_STORAGE_ERROR)
    log = partition.log
    if row.leader_epoch != -1 and row.leader_epoch != partition.leader_epoch:
        return _failure(row.partition, partition.fenced(row.leader_epoch))
    high = partition.high_watermark
    if row.last_fetched_epoch >= 0:
        epoch, end = partition.end_offset_for_epoch(row.last_fetched_epoch)
        if end < 0:
            return _failure(row.partition, WireError.OFFSET_OUT_OF_RANGE)
        if epoch < row.last_fetched_epoch or end < row.offset:
            stable = log.last_stable_offset(high)
            return FetchResult(row.partition, 0, high, stable, log.start_offset, None, (epoch, end))
    if not log.start_offset <= row.offset <= log.end_offset:
        return _failure(row.partition, WireError.OFFSET_OUT_OF_RANGE)
    stable = log.last_stable_offset(high)
    upper = stable if committed else high
    records = None
    if row.offset < upper and (room > 0 or whole_first):
        records = log.locate(row.offset, min(room, row.most_bytes), upper, whole_first=whole_first)
    if not committed:
        return FetchResult(row.partition, 0, high, stable, log.start_offset, records)
    aborted = [each[:2] for each in log.aborted_in(row.offset, records, stable)] if records else []
    return FetchResult(row.partition, 0, high, stable, log.start_offset, records, None, aborted)
