"""Produce 3–13: validate, append, respond. Batches are not copied, and not parsed unless the topic requires it.

Advertised from 0 (KAFKA-18659: older librdkafka otherwise stops compressing) though 0–2 are refused.
5: log start offset. 7: zstd. 8: record errors. 9: flexible. 10: current leader as a tag. 11: errors that abort a
transaction. 12: partitions join their producer's transaction by being written to (KIP-890). 13: topic ids.
"""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final, NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import NO_TIMESTAMP
from moldau.base.later import Later, NowOrLater
from moldau.broker.call import Call
from moldau.broker.context import DataContext
from moldau.broker.leaders import absent, endpoints, leader_of
from moldau.broker.verification import (
    TransactionalBatch,
    VerificationResult,
    Verifications,
    transactional_batch,
    verify,
)
from moldau.log.producers import NOT_ASKED
from moldau.net.reply import BadRequest, Parked, Reply
from moldau.replication.appender import Appended, Outcome
from moldau.replication.leader import ALL
from moldau.replication.partition import Partition
from moldau.wire.headers import PREFIX_AND_LENGTH
from moldau.wire.hot.produce import (
    PRODUCE_BY_ID,
    ProduceBody,
    ProducePartition,
    ProduceResult,
    RepeatedProduce,
    pack_appended,
    pack_produce,
)

ACKS: Final = (-1, 0, 1)
NULL_RECORDS: Final = Refusal(WireError.INVALID_REQUEST, "the records are null")
INTERNAL_TOPIC: Final = Refusal(WireError.INVALID_TOPIC_EXCEPTION, "Clients cannot write to an internal topic.")
INTERNAL_CLIENT: Final[bytes] = b"__admin_client"  # client id of Kafka's brokers: only it may write to internal topics
TOPIC_REFUSED: Final = Refusal.of(WireError.TOPIC_AUTHORIZATION_FAILED)
ID_REFUSED: Final = Refusal.of(WireError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
TIMED_OUT: Final = Refusal.of(WireError.REQUEST_TIMED_OUT)

Results = list[tuple[bytes, list[ProduceResult]]]
Writable = dict[bytes, bool] | None  # topics that the client may write to, by name or id; None: all


class PendingBatch(NamedTuple):
    """A batch whose outcome is pending, and its place in the response."""

    partition_results: list[ProduceResult]
    place: int
    partition: Partition
    later: Later[Outcome]


def produce(ctx: DataContext, frame: memoryview, at: int, call: Call) -> Reply:
    session = call.session
    repeated = session.repeated
    if not isinstance(repeated, RepeatedProduce):
        session.repeated = repeated = RepeatedProduce()
    body = repeated.read(frame, at, call.version)
    if body.acks not in ACKS:
        return _pack(call, _refuse_all(body, Refusal.of(WireError.INVALID_REQUIRED_ACKS)))
    if call.member is not None and body.transactional_id is not None:
        body.transactional_id = call.member.name(body.transactional_id)
    writable: Writable = None
    rights = call.rights(ctx.authorizer)
    if rights is not None:
        writable = rights.writes_by_id if call.version >= PRODUCE_BY_ID else rights.writes
        if body.transactional_id is not None and not rights.may_write_in(body.transactional_id):
            return _refused_all(body, ID_REFUSED, call)
    if body.transactional_id is not None:
        return _produce_in_transaction(ctx, frame, body, call, writable)
    return _append_all(ctx, frame, body, call, None, writable)


def _append_all(
    ctx: DataContext,
    frame: memoryview,
    body: ProduceBody,
    call: Call,
    verifications: dict[Partition, VerificationResult] | None,
    writable: Writable,
) -> Reply:
    acks, version = body.acks, call.version
    by_id = version >= PRODUCE_BY_ID
    replicas = ctx.replicas
    topics = replicas.by_id if by_id else replicas.by_name
    now = ctx.now()
    results: Results = []
    pending: list[PendingBatch] = []
    refused = False
    for token, rows in body.topics:
        partition_results: list[ProduceResult] = []
        results.append((token, partition_results))
        topic = token if call.member is None else call.member.token(token, by_id=by_id)
        if writable is not None and (refusal := _barred(writable, topic, rows, call)) is not None:
            refused = True
            partition_results += [_refused(row.index, refusal) for row in rows]
            continue
        for row in rows:
            index = row.index
            partition = replicas.find(topics, topic, index)
            if partition is None:
                refused = True
                partition_results.append(_absent(ctx, topic, index, by_id))
            elif row.stop < 0:
                partition_results.append(_refused(index, NULL_RECORDS))
            elif partition.internal and not _is_broker(frame):
                partition_results.append(_refused(index, INTERNAL_TOPIC))
            else:
                verification = None if verifications is None else verifications.get(partition, NOT_ASKED)
                outcome = (
                    verification
                    if isinstance(verification, Refusal)
                    else partition.appender.produce(frame[row.start : row.stop], version, now, verification, acks)
                )
                if isinstance(outcome, Appended):
                    partition_results.append(_appended(index, outcome))
                elif isinstance(outcome, Refusal):
                    refused = True
                    partition_results.append(_refused(index, outcome, partition))
                else:
                    pending.append(PendingBatch(partition_results, len(partition_results), partition, outcome))
                    partition_results.append(_refused(index, TIMED_OUT))  # until its outcome is known
    if pending:
        reply = partial(_reply, ctx, results, acks, call)
        return _park(pending, reply, body.timeout_ms if acks == ALL else None)
    if acks and not refused and call.meter is None:
        if len(results) == 1 and len(partition_results) == 1:
            return pack_appended(version, call.correlation_id, token, partition_results[0])
        return pack_produce(version, call.correlation_id, results)
    reply_now = _reply(ctx, results, acks, call)
    if isinstance(reply_now, BadRequest):
        raise reply_now
    return reply_now


def _barred(writable: dict[bytes, bool], topic: bytes, rows: list[ProducePartition], call: Call) -> Refusal | None:
    """Why nothing can be written to a topic: for want of rights, or of space that the client's organisation may use."""
    if not writable[topic]:
        return TOPIC_REFUSED
    if call.member is None:
        return None
    size = sum(row.stop - row.start for row in rows)
    return call.member.produce(topic, size, call.meter, by_id=call.version >= PRODUCE_BY_ID)


def _is_broker(frame: memoryview) -> bool:
    size: int = PREFIX_AND_LENGTH.unpack_from(frame)[3]
    return frame[PREFIX_AND_LENGTH.size : PREFIX_AND_LENGTH.size + max(size, 0)] == INTERNAL_CLIENT


def _produce_in_transaction(
    ctx: DataContext, frame: memoryview, body: ProduceBody, call: Call, writable: Writable
) -> Reply:
    """Verify the batches with the transaction coordinator first; a remote one takes a while."""
    assert body.transactional_id is not None
    transactional_id = body.transactional_id
    version = call.version
    enabled = ctx.config.transaction_partition_verification_enable
    batches = list(_transactional_batches(ctx, body, frame, call, writable))

    def verify_all(view: memoryview) -> NowOrLater[Verifications]:
        found = batches if view is frame else _transactional_batches(ctx, body, view, call, writable)
        return verify(ctx.transactions, transactional_id, found, version, enabled=enabled, now=ctx.now())

    def append(view: memoryview, verifications: Verifications) -> Reply:
        if isinstance(verifications, Refusal):
            return _refused_all(body, verifications, call)
        return _append_all(ctx, view, body, call, verifications, writable)

    return (
        ctx.verification_queue.serve(batches[0].producer_id, frame, verify_all, append)
        if batches
        else append(frame, {})
    )


def _transactional_batches(
    ctx: DataContext, body: ProduceBody, frame: memoryview, call: Call, writable: Writable
) -> Iterator[TransactionalBatch]:
    """The transactional batches of the request, for partitions that this broker leads and the client may write to."""
    by_id = call.version >= PRODUCE_BY_ID
    topics = ctx.replicas.by_id if by_id else ctx.replicas.by_name
    for token, rows in body.topics:
        topic = token if call.member is None else call.member.token(token, by_id=by_id)
        if writable is not None and not writable[topic]:
            continue
        for row in rows:
            partition = ctx.replicas.find(topics, topic, row.index)
            if partition is not None and partition.leads and row.stop >= 0:
                batch = transactional_batch(partition, frame[row.start : row.stop])
                if batch is not None:
                    yield batch


def _reply(ctx: DataContext, results: Results, acks: int, call: Call) -> bytes | BadRequest | None:
    if acks == 0:
        return _failure(results)
    leaders = [
        result.leader for _, partition_results in results for result in partition_results if result.leader is not None
    ]
    found = endpoints(ctx, call.session.listener, leaders) if leaders else ()
    return pack_produce(call.version, call.correlation_id, results, found, throttle_ms=call.throttle_ms())


def _pack(call: Call, results: Results) -> bytes:
    return pack_produce(call.version, call.correlation_id, results, throttle_ms=call.throttle_ms())


def _park(
    pending: list[PendingBatch], reply: Callable[[], bytes | BadRequest | None], timeout_ms: int | None
) -> Parked | bytes | None:
    """The reply to a request some of whose batches are pending: once the last has its outcome, or after the timeout."""
    parked = Parked()
    missing = len(pending)
    timer: asyncio.TimerHandle | None = None

    def finish() -> None:
        for each in pending:
            each.later.forget()
        if timer is not None:
            timer.cancel()
        parked.resolve(reply())

    def arrived(each: PendingBatch, outcome: Outcome) -> None:
        nonlocal missing
        index = each.partition_results[each.place].partition
        each.partition_results[each.place] = (
            _refused(index, outcome, each.partition) if isinstance(outcome, Refusal) else _appended(index, outcome)
        )
        missing -= 1
        if not missing:
            finish()

    for each in pending:
        each.later.then(partial(arrived, each))
    if parked.done:  # a later batch of the same request took the directory offline, and the earlier ones with it
        settled = parked.reply
        if isinstance(settled, BadRequest):
            raise settled
        assert not isinstance(settled, list)
        return settled
    if timeout_ms is not None:  # a batch without an outcome by then keeps REQUEST_TIMED_OUT
        timer = asyncio.get_running_loop().call_later(max(timeout_ms, 0) / 1000, finish)
    return parked


def _failure(results: Results) -> BadRequest | None:
    """acks=0 has no response: a closed connection is the only way to tell the producer."""
    for token, partition_results in results:
        for result in partition_results:
            if result.error:
                name = WireError(result.error).name
                return BadRequest(f"produce with acks=0 to partition {result.partition} of {token!r} failed: {name}")
    return None


def _appended(index: int, outcome: Appended) -> ProduceResult:
    return ProduceResult(index, 0, outcome.base_offset, outcome.append_time, outcome.log_start)


def _absent(ctx: DataContext, token: bytes, index: int, by_id: bool) -> ProduceResult:
    code, leader = absent(ctx, token, index, by_id=by_id)
    result = _refused(index, Refusal(code, code.doc))
    result.leader = leader
    return result


def _refused(index: int, refusal: Refusal, partition: Partition | None = None) -> ProduceResult:
    result = ProduceResult(index, refusal.error, -1, NO_TIMESTAMP, -1, refusal.message, refusal.records)
    if partition is not None and refusal.error is WireError.NOT_LEADER_OR_FOLLOWER:
        result.leader = leader_of(partition.state)
    return result


def _refused_all(body: ProduceBody, refusal: Refusal, call: Call) -> bytes | None:
    results = _refuse_all(body, refusal)
    if body.acks:
        return _pack(call, results)
    failure = _failure(results)
    if failure is not None:
        raise failure
    return None


def _refuse_all(body: ProduceBody, refusal: Refusal) -> Results:
    return [(token, [_refused(row.index, refusal) for row in rows]) for token, rows in body.topics]
