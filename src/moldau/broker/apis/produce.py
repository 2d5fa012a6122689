"""Produce 3–13: check, append, answer; nothing is copied and nothing waits unless a topic asks to see its records.

Advertised from 0 (KAFKA-18659: older librdkafka otherwise stops compressing) though 0–2 are refused.
5: log start offset. 7: zstd. 8: record errors. 9: flexible. 10: current leader as a tag. 13: topic ids.
"""

from functools import partial

from moldau.base.errors import Refusal, WireError
from moldau.broker.context import Context
from moldau.net.reply import BadRequest, Parked
from moldau.replication.partition import Outcome
from moldau.wire.hot import PRODUCE_BY_ID, ProduceAsk, ProduceResult, pack_produce, read_produce

ACKS = (-1, 0, 1)
NO_TIMESTAMP = -1

Results = list[tuple[bytes, list[ProduceResult]]]


def produce(ctx: Context, frame: memoryview, at: int, version: int, correlation: int) -> bytes | Parked | None:
    ask = read_produce(frame, at, version)
    if ask.acks not in ACKS:
        return pack_produce(version, correlation, _refuse_all(ask, WireError.INVALID_REQUIRED_ACKS))
    pending = _Pending(version, correlation, ask.acks)
    by_id = version >= PRODUCE_BY_ID
    topics = ctx.replicas.by_id if by_id else ctx.replicas.by_name
    now = ctx.now()
    results: Results = []
    for token, rows in ask.topics:
        answers: list[ProduceResult] = []
        results.append((token, answers))
        for index, start, stop in rows:
            partition = ctx.replicas.find(topics, token, index)
            if partition is None:
                answers.append(_unknown(index, by_id and token not in topics))
                continue
            if stop < 0:
                answers.append(_refused(index, Refusal(WireError.INVALID_REQUEST, "the records are null")))
                continue
            outcome = partition.produce(
                frame[start:stop], version, now, partial(pending.arrived, answers, len(answers))
            )
            if outcome is None:
                pending.missing += 1
                answers.append(_refused(index, Refusal.of(WireError.REQUEST_TIMED_OUT)))  # its place, until it arrives
            elif isinstance(outcome, Refusal):
                answers.append(_refused(index, outcome))
            else:
                answers.append(ProduceResult(index, 0, *outcome))
    return pending.reply(results)


class _Pending:
    """The answer of one request while some of its batches are in a slow lane."""

    __slots__ = ("_acks", "_correlation", "_parked", "_results", "_version", "missing")

    def __init__(self, version: int, correlation: int, acks: int) -> None:
        self._version = version
        self._correlation = correlation
        self._acks = acks
        self._results: Results = []
        self._parked: Parked | None = None
        self.missing = 0

    def reply(self, results: Results) -> bytes | Parked | None:
        if self.missing:
            self._results = results
            self._parked = Parked()
            return self._parked
        if self._acks == 0:
            failure = _failure(results)
            if failure is not None:
                raise failure
            return None
        return pack_produce(self._version, self._correlation, results)

    def arrived(self, answers: list[ProduceResult], place: int, outcome: Outcome) -> None:
        index = answers[place].partition
        answers[place] = _refused(index, outcome) if isinstance(outcome, Refusal) else ProduceResult(index, 0, *outcome)
        self.missing -= 1
        if self.missing or self._parked is None:
            return
        if self._acks == 0:
            self._parked.resolve(_failure(self._results))
        else:
            self._parked.resolve(pack_produce(self._version, self._correlation, self._results))


def _failure(results: Results) -> BadRequest | None:
    """acks=0 has no response: a closed connection is the only way to tell the producer."""
    for token, answers in results:
        for answer in answers:
            if answer.error:
                name = WireError(answer.error).name
                return BadRequest(f"produce with acks=0 to partition {answer.partition} of {token!r} failed: {name}")
    return None


def _unknown(index: int, unknown_id: bool) -> ProduceResult:
    code = WireError.UNKNOWN_TOPIC_ID if unknown_id else WireError.UNKNOWN_TOPIC_OR_PARTITION
    return _refused(index, Refusal(code, code.doc))


def _refused(index: int, refusal: Refusal) -> ProduceResult:
    return ProduceResult(index, refusal.error, -1, NO_TIMESTAMP, -1, refusal.message, refusal.records)


def _refuse_all(ask: ProduceAsk, error: WireError) -> Results:
    refusal = Refusal.of(error)
    return [(token, [_refused(index, refusal) for index, _, _ in rows]) for token, rows in ask.topics]
