"""Fetch 4–18: plan by index arithmetic, wait if there is too little, answer with slices of files.

7: fetch sessions. 9: leader epochs. 11: the client's rack. 12: flexible, divergence by epoch. 13: topic ids.
15: the replica's id is a tag. 16–18: tags for clusters.

Consumers read what is committed. Followers read up to the end of the log, and what they ask for tells the leader what
they have; a fetch of theirs that waits is also answered when the high watermark moves, which consumers of theirs see.
"""

import logging
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.broker.fetch_sessions import Fetch, FetchSession
from moldau.broker.leaders import Leader as CurrentLeader
from moldau.broker.leaders import absent, endpoints, leader_of
from moldau.broker.replica_selector import NONE, RACK_AWARE, Choice, preferred_replica
from moldau.log.segment import CorruptLogError
from moldau.net.reply import BadRequest, Parked, Parts
from moldau.replication.isr import UNKNOWN
from moldau.replication.leader import Leader
from moldau.replication.partition import Partition
from moldau.replication.throttle import UNLIMITED, named
from moldau.replication.waiters import Copier, FetchWaiter, Place, Watched
from moldau.wire.hot import FETCH_BY_ID, FetchBody, FetchPartition, FetchResult, pack_fetch, read_fetch

logger = logging.getLogger("moldau.broker")

READ_COMMITTED = 1
FOLLOWERS_SERVE = 11  # the version from which on followers serve consumers (KIP-392)
NOT_LEADER = WireError.NOT_LEADER_OR_FOLLOWER


class Reader(NamedTuple):
    """Who asks, and for what."""

    ask: FetchBody
    version: int
    committed: bool  # it wants no records of transactions that are not committed
    follower: bool
    said: Collection[Place] | None = None  # partitions of which the request says what it has; None: all of them


class Plan(NamedTuple):
    results: list[tuple[bytes, FetchResult]]
    partitions: list[Partition]
    size: int
    ready: bool  # there is more to tell than records: an error, another replica to ask


def fetch(ctx: DataContext, frame: memoryview, at: int, call: Call) -> Parts | Parked:
    version = call.version
    ask = read_fetch(frame, at, version)
    opened = ctx.fetch_sessions.open(ask, version, ctx.now())
    if opened.asked is None:
        return pack_fetch(version, call.correlation_id, opened.error, 0, [])
    reader = Reader(ask, version, ask.isolation == READ_COMMITTED, ask.replica_id >= 0)
    if reader.follower and opened.session is not None and version >= FETCH_BY_ID:
        return _copy(ctx, opened, opened.session, reader, partial(_answer, ctx, opened, call))
    plan = plan_fetch(ctx, reader, opened.asked)
    if reader.follower:
        for partition in plan.partitions:  # all sessions are in use, and the one that it had is over
            partition.copiers.pop(ask.replica_id, None)
    if plan.ready or plan.size >= ask.min_bytes or ask.max_wait_ms <= 0 or not opened.asked:
        return _answer(ctx, opened, call, plan)
    again = reader._replace(said=())
    asked = opened.asked
    parked, _ = _park(
        list(plan.partitions),
        reader,
        plan.size,
        lambda: _answer(ctx, opened, call, plan_fetch(ctx, again, asked)),
    )
    return parked


def _copy(
    ctx: DataContext, opened: Fetch, session: FetchSession, reader: Reader, answer: Callable[[Plan], Parts]
) -> Parts | Parked:
    """A follower's fetch: of all partitions of its session, those are looked at that have news for it."""
    now, ask = ctx.replicas.around.now(), reader.ask
    copier = session.copier
    if copier is None:
        copier = session.copier = Copier(now)
    else:
        copier.asks(now, ask.max_wait_ms)
    said = {(token, row.partition) for token, rows in ask.topics for row in rows}
    copier.touched.update(dict.fromkeys(said))
    if copier.due(ask.replica_epoch, now):
        said |= _look_at_all(ctx, ask, session, copier, said)
    plan, news = _plan_copies(ctx, reader._replace(said=said), session, copier)
    if plan.ready or plan.size >= ask.min_bytes or ask.max_wait_ms <= 0 or opened.moves_watermarks(plan.results):
        return answer(plan)
    again = reader._replace(said=())
    parked, waiter = _park([copier], reader, plan.size, lambda: answer(_plan_copies(ctx, again, session, copier)[0]))
    session.waiting = waiter.fire
    if news:  # what this request let commit made somebody write: a coordinator, a marker
        waiter.fire_soon()
    return parked


def _look_at_all(
    ctx: DataContext, ask: FetchBody, session: FetchSession, copier: Copier, said: set[Place]
) -> set[Place]:
    """From time to time, and when the follower has registered anew: nothing of a session is forgotten for long.

    Returns what counts as said once more: what leaders here do not know of it.
    """
    forgotten: set[Place] = set()
    copier.touched.update(dict.fromkeys(session.partitions))
    for place, cached in session.partitions.items():
        partition = ctx.replicas.find(ctx.replicas.by_id, *place)
        role = None if partition is None else partition.role
        if partition is not None and isinstance(role, Leader) and role.knows(ask.replica_id):
            partition.copiers[ask.replica_id] = copier
            if place not in said and not role.stale(ask.replica_id, ask.replica_epoch):
                role.heard(ask.replica_id, ask.replica_epoch, cached.asked.offset)
            if role.isr.followers[ask.replica_id].end_offset == UNKNOWN:
                forgotten.add(place)
    return forgotten


def _plan_copies(ctx: DataContext, reader: Reader, session: FetchSession, copier: Copier) -> tuple[Plan, bool]:
    """What there is to tell, and whether there was news meanwhile. That waits for the next time, as does what had no
    room.
    """
    replicas, broker, known = ctx.replicas, reader.ask.replica_id, session.partitions
    touched, copier.touched = copier.touched, {}
    asked = [(place[0], known[place].asked) for place in touched if place in known]
    for place in touched:
        if place not in known:  # the follower does not ask for it any more
            _unsubscribe(replicas.find(replicas.by_id, *place), broker, copier)
    plan = plan_fetch(ctx, reader, asked)
    news = bool(copier.touched)
    for (token, row), (_, result) in zip(asked, plan.results, strict=True):
        partition = replicas.find(replicas.by_id, token, row.partition)
        if partition is None or result.error:
            continue
        if reader.said:  # a request, and not what an earlier one waited for
            partition.copiers[broker] = copier
        if result.records is None and result.diverging is None and row.offset < partition.log.end_offset:
            copier.touched[token, row.partition] = None  # there was no room for its records
    return plan, news


def _unsubscribe(partition: Partition | None, broker: int, copier: Copier) -> None:
    if partition is not None and partition.copiers.get(broker) is copier:
        del partition.copiers[broker]


def _answer(ctx: DataContext, opened: Fetch, call: Call, plan: Plan) -> Parts:
    answers = opened.answer(plan.results)
    if not plan.ready:
        return pack_fetch(call.version, call.correlation_id, 0, opened.session_id, answers)
    leaders = endpoints(ctx, call.session.listener, (result.leader for _, result in plan.results))
    return pack_fetch(call.version, call.correlation_id, 0, opened.session_id, answers, leaders)


def _park(watched: list[Watched], reader: Reader, size: int, answer: Callable[[], Parts]) -> tuple[Parked, FetchWaiter]:
    def fire() -> None:
        try:
            parked.resolve(answer())
        except Exception:
            logger.exception("answering a fetch that had waited failed")
            parked.resolve(BadRequest("an internal error"))

    ask = reader.ask
    waiter = FetchWaiter(
        watched,
        ask.min_bytes - size,
        ask.max_wait_ms,
        fire,
        committed=reader.committed,
        follower=reader.follower,
    )
    parked = Parked(waiter.cancel)
    return parked, waiter


def plan_fetch(ctx: DataContext, reader: Reader, asked: list[tuple[bytes, FetchPartition]]) -> Plan:
    ask = reader.ask
    by_id = reader.version >= FETCH_BY_ID
    topics = ctx.replicas.by_id if by_id else ctx.replicas.by_name
    room = min(ask.max_bytes, ctx.config.fetch_max_bytes)
    results: list[tuple[bytes, FetchResult]] = []
    partitions: list[Partition] = []
    size = 0
    ready = False
    for token, row in asked:
        partition = ctx.replicas.find(topics, token, row.partition)
        if partition is None:
            result = _failure(row.partition, *absent(ctx, token, row.partition, by_id=by_id))
        else:
            says = reader.said is None or (token, row.partition) in reader.said
            result = _read_or_fail(ctx, partition, row, room - size, reader, says, whole_first=size == 0)
            partitions.append(partition)
        if result.records is not None:
            size += result.records.length
        ready = ready or result.error != 0 or result.diverging is not None or result.preferred >= 0
        results.append((token, result))
    return Plan(results, partitions, size, ready)


def _failure(index: int, code: WireError, leader: CurrentLeader | None = None) -> FetchResult:
    return FetchResult(index, code, -1, -1, -1, leader=leader)


def _read_or_fail(
    ctx: DataContext,
    partition: Partition,
    row: FetchPartition,
    room: int,
    reader: Reader,
    says: bool,
    *,
    whole_first: bool,
) -> FetchResult:
    """A damaged log is an error of its partition; the others in the request are answered."""
    try:
        if not partition.sole_online_replica or reader.follower:
            return _read_replica(ctx, partition, row, room, reader, says, whole_first=whole_first)
        return _read(partition, row, room, reader.committed, whole_first=whole_first)
    except (CorruptLogError, OSError) as problem:
        logger.error("reading %s-%d failed: %s", partition.topic, partition.index, problem)
        corrupt = isinstance(problem, CorruptLogError)
        partition.cannot_read(problem)
        return _failure(row.partition, WireError.CORRUPT_MESSAGE if corrupt else WireError.KAFKA_STORAGE_ERROR)


def _read_replica(
    ctx: DataContext,
    partition: Partition,
    row: FetchPartition,
    room: int,
    reader: Reader,
    says: bool,
    *,
    whole_first: bool,
) -> FetchResult:
    """Of a partition with several replicas, or for a follower."""
    if partition.offline:
        return _failure(row.partition, WireError.KAFKA_STORAGE_ERROR)
    refused = _refused(partition, row, reader)
    if refused:
        return _failure(row.partition, refused, leader_of(partition.state))
    if not reader.follower:
        if row.offset > partition.log.end_offset and (behind := _behind(partition)):
            return _failure(row.partition, behind)
        preferred = _preferred(ctx, partition, row.offset, reader.ask.rack)
        if preferred == NONE:
            return _read(partition, row, room, reader.committed, whole_first=whole_first)
        high = partition.high_watermark
        stable = partition.last_stable_offset
        return FetchResult(row.partition, 0, high, stable, partition.log.start_offset, preferred=preferred)
    throttle = ctx.replicas.sending
    throttled = throttle.rate != UNLIMITED and _throttled(partition, reader.ask.replica_id, ctx.config.node_id)
    if throttled and throttle.exceeded(ctx.now()):
        room, whole_first = 0, False
    result = _read(partition, row, room, False, whole_first=whole_first, to_end=True)
    if throttled and result.records is not None:
        throttle.record(result.records.length, ctx.now())
    if not says or result.error or result.diverging is not None:
        return result
    leader, before = partition.role, result.high_watermark
    assert isinstance(leader, Leader)
    leader.fetched(reader.ask.replica_id, row.offset, row.log_start, reader.ask.replica_epoch)
    if result.records is not None:
        leader.sent(reader.ask.replica_id, row.offset)
    high = leader.high_watermark
    return result if high == before else result._replace(high_watermark=high)


def _refused(partition: Partition, row: FetchPartition, reader: Reader) -> WireError:
    if row.leader_epoch != -1 and row.leader_epoch != partition.leader_epoch:
        return partition.fenced(row.leader_epoch)
    if not reader.follower:
        return WireError.NONE if partition.leads or reader.version >= FOLLOWERS_SERVE else NOT_LEADER
    role, ask = partition.role, reader.ask
    if not partition.leads or not isinstance(role, Leader) or not role.knows(ask.replica_id):
        return NOT_LEADER
    return NOT_LEADER if role.stale(ask.replica_id, ask.replica_epoch) else WireError.NONE


def _behind(partition: Partition) -> WireError:
    """What a consumer hears who has read more than there is here; NONE where that cannot be."""
    if not partition.leads:  # KIP-392: this follower is behind, and the leader may well have it
        return WireError.OFFSET_NOT_AVAILABLE
    role = partition.role
    return NOT_LEADER if isinstance(role, Leader) and role.may_be_replaced() else WireError.NONE


def _throttled(partition: Partition, follower: int, here: int) -> bool:
    """KIP-73: whether a follower is held back, because the leader's replica is named. Who is in sync must stay so."""
    in_sync = partition.state is not None and follower in partition.state.isr
    return not in_sync and named(partition.log.config.leader_replication_throttled_replicas, partition.index, here)


def _preferred(ctx: DataContext, partition: Partition, offset: int, rack: bytes) -> int:
    role = partition.role
    if not rack or not isinstance(role, Leader) or ctx.config.replica_selector_class != RACK_AWARE:
        return NONE
    in_sync = {each: known for each, known in role.isr.followers.items() if each in role.isr.committed}
    choice = Choice(ctx.config.node_id, in_sync, ctx.image.brokers)  # who is not may never get on
    return preferred_replica(choice, rack.decode("utf-8", "replace"), offset)


def _read(
    partition: Partition, row: FetchPartition, room: int, committed: bool, *, whole_first: bool, to_end: bool = False
) -> FetchResult:
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
    upper = log.end_offset if to_end else stable if committed else high
    records = None
    if row.offset < upper and (room > 0 or whole_first):
        records = log.locate(row.offset, min(room, row.most_bytes), upper, whole_first=whole_first)
    if not committed:
        return FetchResult(row.partition, 0, high, stable, log.start_offset, records)
    aborted = [each[:2] for each in log.aborted_in(row.offset, records, stable)] if records else []
    return FetchResult(row.partition, 0, high, stable, log.start_offset, records, None, aborted)
