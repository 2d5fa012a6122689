"""Fetch 4–18: plan by index arithmetic, wait if there is too little, answer with slices of files.

7: fetch sessions. 9: leader epochs. 11: the client's rack. 12: flexible, divergence by epoch. 13: topic ids.
15: the replica's id is a tag. 16–18: tags for clusters.

Here consumers are answered, which read what is committed. Followers speak another protocol in the same message; theirs
is in `broker/follower_fetch.py`.
"""

from typing import Final

from moldau.base.errors import WireError
from moldau.base.ids import Offset
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.broker.fetch_answer import delay, respond
from moldau.broker.fetch_plan import (
    READ_COMMITTED,
    Asked,
    Plan,
    committed_records,
    failure,
    rejection,
    unreadable,
    whole_batches,
)
from moldau.broker.fetch_sessions import FetchContext
from moldau.broker.follower_fetch import fetch_as_follower
from moldau.broker.leaders import absent, leader_of
from moldau.broker.quotas import UNLIMITED, Meter
from moldau.broker.replica_selector import NONE, RACK_AWARE, Choice, preferred_replica
from moldau.log.segment import CorruptLogError
from moldau.net.reply import Parked, Parts
from moldau.replication.leader import Leader
from moldau.replication.partition import Partition
from moldau.wire.hot.fetch import FETCH_BY_ID, FetchBody, FetchPartition, FetchResult, pack_fetch, read_fetch

Readable = dict[bytes, bool] | None  # topics that the client may read, by name or id; None: all
NOTHING_YET: Final = Plan([], [], 0, ready=True)  # for a client that is over its quota
FOLLOWERS_SERVE: Final = 11  # the version from which on followers serve consumers (KIP-392)


def fetch(ctx: DataContext, frame: memoryview, at: int, call: Call) -> Parts | Parked:
    version = call.version
    ask = read_fetch(frame, at, version)
    opened = ctx.fetch_sessions.open(ask, version, ctx.now())
    if opened.asked is None:
        return pack_fetch(version, call.correlation_id, opened.error, 0, [], throttle_ms=call.throttle_ms())
    asked = opened.asked
    if ask.replica_id >= 0:
        call.meter = None  # followers have no quotas, but throttles of replication
        rights = call.rights(ctx.authorizer)
        if rights is not None and not rights.may_follow():
            return respond(ctx, opened, call, _refuse_all(asked))
        return fetch_as_follower(ctx, opened, ask, call)
    if call.meter is not None:
        return _fetch_metered(ctx, opened, ask, call, call.meter)
    plan = plan_fetch(ctx, ask, call, asked)
    if plan.ready or plan.size >= ask.min_bytes or ask.max_wait_ms <= 0 or not asked:
        return respond(ctx, opened, call, plan)
    parked, _ = delay(
        plan.partitions,
        ask,
        ask.min_bytes - plan.size,
        lambda: respond(ctx, opened, call, plan_fetch(ctx, ask, call, asked)),
        read_committed=ask.isolation == READ_COMMITTED,
    )
    return parked


def _readable(ctx: DataContext, call: Call) -> Readable:
    rights = call.rights(ctx.authorizer)
    if rights is None:
        return None
    return rights.reads_by_id if call.version >= FETCH_BY_ID else rights.reads


def _refuse_all(asked: Asked) -> Plan:
    failed = WireError.TOPIC_AUTHORIZATION_FAILED
    return Plan([(token, failure(row.partition, failed)) for token, row in asked], [], 0, True, [])


def _fetch_metered(ctx: DataContext, opened: FetchContext, ask: FetchBody, call: Call, meter: Meter) -> Parts | Parked:
    """As `fetch`, within the client's quota."""
    asked = opened.asked or []
    if call.member is not None:
        topics = (token for token, _ in asked)
        meter.limit_fetch(call.member.fetch_buckets(topics, by_id=call.version >= FETCH_BY_ID))
    most = meter.most_fetched
    ask = ask._replace(max_bytes=min(ask.max_bytes, most), min_bytes=min(ask.min_bytes, most))

    def planned() -> Plan:
        if not meter.may_fetch:
            return NOTHING_YET
        plan = plan_fetch(ctx, ask, call, asked)
        return plan if most == UNLIMITED else whole_batches(plan)

    plan = planned()
    if plan.ready or plan.size >= ask.min_bytes or ask.max_wait_ms <= 0 or not asked:
        return respond(ctx, opened, call, plan)
    parked, _ = delay(
        plan.partitions,
        ask,
        ask.min_bytes - plan.size,
        lambda: respond(ctx, opened, call, planned()),
        read_committed=ask.isolation == READ_COMMITTED,
    )
    return parked


def plan_fetch(ctx: DataContext, ask: FetchBody, call: Call, asked: Asked) -> Plan:
    version, member = call.version, call.member
    readable = _readable(ctx, call)
    by_id = version >= FETCH_BY_ID
    find = ctx.replicas.find
    topics = ctx.replicas.by_id if by_id else ctx.replicas.by_name
    room = min(ask.max_bytes, ctx.config.fetch_max_bytes)
    results: list[tuple[bytes, FetchResult]] = []
    partitions: list[Partition] = []
    corrupt: list[tuple[Partition, Exception]] = []
    size = 0
    ready = False
    result: FetchResult
    for token, row in asked:
        topic = token if member is None else member.token(token, by_id=by_id)
        partition = find(topics, topic, row.partition)
        if readable is not None and not readable[topic]:
            result = failure(row.partition, WireError.TOPIC_AUTHORIZATION_FAILED)
        elif partition is None:
            result = failure(row.partition, *absent(ctx, topic, row.partition, by_id=by_id))
        else:
            partitions.append(partition)
            try:
                result = (
                    (None if partition.sole_online_replica else _elsewhere(ctx, partition, row, ask, version))
                    or rejection(partition, row)
                    or committed_records(partition, row, room - size, ask.isolation, whole_first=size == 0)
                )
            except (CorruptLogError, OSError) as problem:
                corrupt.append((partition, problem))
                result = unreadable(row.partition, problem)
        if result.records is not None:
            size += result.records.length
        elif result.error or result.diverging is not None or result.preferred >= 0:
            ready = True
        results.append((token, result))
    return Plan(results, partitions, size, ready, corrupt)


def _elsewhere(
    ctx: DataContext, partition: Partition, row: FetchPartition, ask: FetchBody, version: int
) -> FetchResult | None:
    """The answer of a partition with several replicas to a consumer that should not read here; None: it should."""
    standing = partition.standing
    if standing.offline:
        return failure(row.partition, WireError.KAFKA_STORAGE_ERROR)
    if row.leader_epoch != -1 and row.leader_epoch != partition.leader_epoch:
        return failure(row.partition, partition.fenced(row.leader_epoch), leader_of(partition.state))
    if not standing.leads and version < FOLLOWERS_SERVE:
        return failure(row.partition, WireError.NOT_LEADER_OR_FOLLOWER, leader_of(partition.state))
    if row.offset > partition.log.end_offset and (behind := _behind(partition)):
        return failure(row.partition, behind)
    preferred = _preferred(ctx, partition, row.offset, ask.rack)
    if preferred == NONE:
        return None
    high, stable = partition.high_watermark, partition.last_stable_offset
    return FetchResult(row.partition, 0, high, stable, partition.log.start_offset, preferred=preferred)


def _behind(partition: Partition) -> WireError:
    """The error for a consumer that has read beyond the end of this log; NONE where that cannot be."""
    if not partition.leads:  # KIP-392: this follower is behind, and the leader may well have the records
        return WireError.OFFSET_NOT_AVAILABLE
    role = partition.role
    return WireError.NOT_LEADER_OR_FOLLOWER if isinstance(role, Leader) and role.may_be_replaced() else WireError.NONE


def _preferred(ctx: DataContext, partition: Partition, offset: Offset, rack: bytes) -> int:
    role = partition.role
    if not rack or not isinstance(role, Leader) or ctx.config.replica_selector_class != RACK_AWARE:
        return NONE
    in_sync = {each: known for each, known in role.isr.followers.items() if each in role.isr.committed_isr}
    choice = Choice(ctx.config.node_id, in_sync, ctx.image.brokers)  # a replica out of sync may never catch up
    return preferred_replica(choice, rack.decode("utf-8", "replace"), offset)
