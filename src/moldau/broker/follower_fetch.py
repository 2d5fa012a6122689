"""Fetch from a follower: the offset it asks for tells the leader what it has, and it copies to the end of the log.

First the follower's progress is noted, which may commit records and move the high watermark. Then comes a plan, which
changes nothing, and last the bookkeeping of what is sent. A delayed fetch is answered when records come, and when the
high watermark or the log start moves.

A follower asks for all its partitions again and again. With a fetch session only those are looked at that have news
for it (`FollowerSession`); every two seconds all of them are.
"""

from collections.abc import Mapping
from typing import Final

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.broker.fetch_answer import delay, respond
from moldau.broker.fetch_plan import Asked, Plan, failure, records_to_end, rejection, unreadable
from moldau.broker.fetch_sessions import FetchContext, FetchSession
from moldau.broker.leaders import absent, leader_of
from moldau.log.segment import CorruptLogError
from moldau.net.reply import Parked, Parts
from moldau.replication.delayed_fetch import FollowerSession, PartitionKey
from moldau.replication.isr import UNKNOWN
from moldau.replication.leader import Leader
from moldau.replication.partition import Partition
from moldau.replication.throttle import UNLIMITED, named
from moldau.wire.hot.fetch import FETCH_BY_ID, FetchBody, FetchPartition, FetchResult

Checked = Mapping[PartitionKey, FetchResult | None]  # partitions that were checked, and what is wrong with each
NOTHING: Final[Checked] = {}
UNTHROTTLED: Final = float("inf")


def fetch_as_follower(ctx: DataContext, fetch: FetchContext, ask: FetchBody, call: Call) -> Parts | Parked:
    by_id = call.version >= FETCH_BY_ID
    if fetch.session is not None and by_id:
        return _with_session(ctx, fetch, fetch.session, ask, call)
    asked = fetch.asked or []
    checked = _note_progress(ctx, ask, asked, by_id=by_id)
    plan = _planned(ctx, ask, asked, checked, by_id=by_id)
    topics = ctx.replicas.by_id if by_id else ctx.replicas.by_name
    for (token, row), (_, result) in zip(asked, plan.results, strict=True):
        partition = ctx.replicas.find(topics, token, row.partition)
        if partition is not None:
            partition.follower_sessions.pop(ask.replica_id, None)  # all sessions are in use, and the one it had is over
            _note_sent(partition, ask.replica_id, row, result)
    if plan.ready or plan.size >= ask.min_bytes or ask.max_wait_ms <= 0 or not asked:
        return respond(ctx, fetch, call, plan)

    def answer() -> Parts:
        return respond(ctx, fetch, call, _planned(ctx, ask, asked, NOTHING, by_id=by_id))

    parked, _ = delay(plan.partitions, ask, ask.min_bytes - plan.size, answer, follower=True)
    return parked


def _with_session(
    ctx: DataContext, fetch: FetchContext, session: FetchSession, ask: FetchBody, call: Call
) -> Parts | Parked:
    follower = _follower_session(ctx, session, ask)
    said = {(token, row.partition) for token, rows in ask.topics for row in rows}
    follower.touched.update(dict.fromkeys(said))
    if follower.due(ask.replica_epoch, ctx.replicas.cluster.now()):
        said |= _look_at_all(ctx, ask, session, follower, said)
    known = session.partitions
    rows = [(name[0], known[name].asked) for name in follower.touched if name in said and name in known]
    checked = _note_progress(ctx, ask, rows, by_id=True)
    plan = _plan_session(ctx, ask, session, follower, checked)
    if plan.ready or plan.size >= ask.min_bytes or ask.max_wait_ms <= 0 or fetch.moves_watermarks(plan.results):
        return respond(ctx, fetch, call, plan)

    def answer() -> Parts:
        return respond(ctx, fetch, call, _plan_session(ctx, ask, session, follower, NOTHING))

    parked, delayed = delay([follower], ask, ask.min_bytes - plan.size, answer, follower=True)
    session.end_wait = delayed.fire
    return parked


def _follower_session(ctx: DataContext, session: FetchSession, ask: FetchBody) -> FollowerSession:
    now, follower = ctx.replicas.cluster.now(), session.follower
    if follower is None:
        follower = session.follower = FollowerSession(now)
    else:
        follower.asks(now, ask.max_wait_ms)
    return follower


def _look_at_all(
    ctx: DataContext, ask: FetchBody, session: FetchSession, follower: FollowerSession, said: set[PartitionKey]
) -> set[PartitionKey]:
    """Look at all partitions of a session, now and then and when the follower registered again: no mistake lasts.

    Returns those whose leaders here know nothing of the follower: what its session remembers counts as said again.
    """
    forgotten: set[PartitionKey] = set()
    follower.touched.update(dict.fromkeys(session.partitions))
    for name, cached in session.partitions.items():
        partition = ctx.replicas.find(ctx.replicas.by_id, *name)
        role = None if partition is None else partition.role
        if partition is not None and isinstance(role, Leader) and role.knows(ask.replica_id):
            partition.follower_sessions[ask.replica_id] = follower
            if name not in said and not role.stale(ask.replica_id, ask.replica_epoch):
                role.heard(ask.replica_id, ask.replica_epoch, cached.asked.offset)
            if role.isr.followers[ask.replica_id].end_offset == UNKNOWN:
                forgotten.add(name)
    return forgotten


# ── progress ──


def _note_progress(ctx: DataContext, ask: FetchBody, asked: Asked, *, by_id: bool) -> Checked:
    """Tell leaders what the follower has: everything before the offset that it asks for."""
    checked: dict[PartitionKey, FetchResult | None] = {}
    topics = ctx.replicas.by_id if by_id else ctx.replicas.by_name
    for token, row in asked:
        partition = ctx.replicas.find(topics, token, row.partition)
        if partition is None:
            continue
        wrong = checked[token, row.partition] = _wrong(partition, row, ask)
        leader = partition.role
        if wrong is None and isinstance(leader, Leader):
            leader.fetched(ask.replica_id, row.offset, row.log_start, ask.replica_epoch)
    return checked


def _wrong(partition: Partition, row: FetchPartition, ask: FetchBody) -> FetchResult | None:
    """The answer to a follower that cannot copy from here, or not at this offset; None: it can."""
    standing, role = partition.standing, partition.role
    if standing.offline:
        return failure(row.partition, WireError.KAFKA_STORAGE_ERROR)
    if row.leader_epoch != -1 and row.leader_epoch != partition.leader_epoch:
        return failure(row.partition, partition.fenced(row.leader_epoch), leader_of(partition.state))
    if not standing.leads or not isinstance(role, Leader) or not role.knows(ask.replica_id):
        return failure(row.partition, WireError.NOT_LEADER_OR_FOLLOWER, leader_of(partition.state))
    if role.stale(ask.replica_id, ask.replica_epoch):
        return failure(row.partition, WireError.NOT_LEADER_OR_FOLLOWER, leader_of(partition.state))
    return rejection(partition, row)


# ── the plan ──


def _planned(ctx: DataContext, ask: FetchBody, asked: Asked, checked: Checked, *, by_id: bool) -> Plan:
    """Plan, and count what is sent against the throttle."""
    throttle = ctx.replicas.sending
    allowance = UNTHROTTLED if throttle.rate == UNLIMITED else throttle.allowance(ctx.now())
    plan = plan_copies(ctx, ask, asked, checked, allowance, by_id=by_id)
    if plan.throttled_bytes:
        throttle.record(plan.throttled_bytes, ctx.now())
    return plan


def _note_sent(partition: Partition, broker: int, row: FetchPartition, result: FetchResult) -> None:
    """A leader counts how often it sends the same records: after some times it checks what is on disk."""
    if result.records is not None and isinstance(partition.role, Leader):
        partition.role.sent(broker, row.offset)


def plan_copies(
    ctx: DataContext, ask: FetchBody, asked: Asked, checked: Checked, allowance: float, *, by_id: bool
) -> Plan:
    """`allowance`: bytes that throttled followers may get now (KIP-73)."""
    find = ctx.replicas.find
    topics = ctx.replicas.by_id if by_id else ctx.replicas.by_name
    room = min(ask.max_bytes, ctx.config.fetch_max_bytes)
    results: list[tuple[bytes, FetchResult]] = []
    partitions: list[Partition] = []
    corrupt: list[tuple[Partition, Exception]] = []
    size = throttled_bytes = 0
    ready = False
    result: FetchResult
    for token, row in asked:
        name = (token, row.partition)
        partition = find(topics, token, row.partition)
        if partition is None:
            result = failure(row.partition, *absent(ctx, token, row.partition, by_id=by_id))
        else:
            partitions.append(partition)
            try:
                wrong = checked[name] if name in checked else _wrong(partition, row, ask)
                if wrong is not None:
                    result = wrong
                else:
                    throttled = allowance != UNTHROTTLED and _throttled(partition, ask.replica_id, ctx.config.node_id)
                    held = throttled and throttled_bytes > allowance
                    left, whole_first = (0, False) if held else (room - size, size == 0)
                    result = records_to_end(partition, row, left, whole_first=whole_first)
                    if throttled and result.records is not None:
                        throttled_bytes += result.records.length
            except (CorruptLogError, OSError) as problem:
                corrupt.append((partition, problem))
                result = unreadable(row.partition, problem)
        if result.records is not None:
            size += result.records.length
        elif result.error or result.diverging is not None:
            ready = True
        results.append((token, result))
    return Plan(results, partitions, size, ready, corrupt, throttled_bytes)


def _throttled(partition: Partition, follower: int, here: int) -> bool:
    """KIP-73: whether a follower is held back, because the leader's replica is named. In-sync ones must stay so."""
    in_sync = partition.state is not None and follower in partition.state.isr
    return not in_sync and named(partition.log.config.leader_replication_throttled_replicas, partition.index, here)


def _plan_session(
    ctx: DataContext, ask: FetchBody, session: FetchSession, follower: FollowerSession, checked: Checked
) -> Plan:
    """Plan for the partitions of a session that have news. What has no room waits for the next request."""
    replicas, broker, known = ctx.replicas, ask.replica_id, session.partitions
    touched, follower.touched = follower.touched, {}
    asked = [(name[0], known[name].asked) for name in touched if name in known]
    for name in touched:
        if name not in known:  # the follower does not ask for it any more
            _unsubscribe(replicas.find(replicas.by_id, *name), broker, follower)
    plan = _planned(ctx, ask, asked, checked, by_id=True)
    for (token, row), (_, result) in zip(asked, plan.results, strict=True):
        partition = replicas.find(replicas.by_id, token, row.partition)
        if partition is None or result.error:
            continue
        if checked:  # a request, and not the answer to a delayed one
            partition.follower_sessions[broker] = follower
            if (token, row.partition) in checked:
                _note_sent(partition, broker, row, result)
        if result.records is None and result.diverging is None and row.offset < partition.log.end_offset:
            follower.touched[token, row.partition] = None  # there was no room for its records
    return plan


def _unsubscribe(partition: Partition | None, broker: int, follower: FollowerSession) -> None:
    if partition is not None and partition.follower_sessions.get(broker) is follower:
        del partition.follower_sessions[broker]
