"""The hand-written Produce and Fetch codecs against the declared messages: every version, any value, hostile bytes."""

from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.base.slices import FileSlice
from moldau.wire.codec import decode, encode
from moldau.wire.headers import read_response_header
from moldau.wire.hot import fetch, produce
from moldau.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchRequest, FetchResponse
from moldau.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from moldau.wire.primitives import MalformedMessage
from support.wire.values import messages, sample

PRODUCE, FETCH = 0, 1
PRODUCE_VERSIONS = range(3, 14)
FETCH_VERSIONS = range(4, 19)
HEAD = b"whatever stands before the body"

INT32 = st.sampled_from([-(2**31), -1, 2**31 - 1]) | st.integers(0, 1000)
INT64 = st.sampled_from([-(2**63), -1, 2**63 - 1]) | st.integers(0, 2**40)
CODES = st.sampled_from([-1, 0, 3, 42, 100])
TEXTS = st.none() | st.text(max_size=10) | st.just("ž" * 100)


few = settings(max_examples=20)  # of each of 26 versions


class Records(NamedTuple):
    """Records as they would lie in a file."""

    data: bytes
    fd: int = -1


def piece(data: bytes) -> FileSlice:
    return FileSlice(Records(data), 0, len(data), False)


def data_of(part: bytes | bytearray | FileSlice) -> bytes | bytearray:
    if isinstance(part, FileSlice):
        assert isinstance(part.file, Records)
        return part.file.data
    return part


def tokens(by_id: bool) -> st.SearchStrategy[bytes]:
    return st.uuids(allow_nil=True).map(lambda each: each.bytes) if by_id else st.text(max_size=20).map(str.encode)


def name_or_id(token: bytes, by_id: bool) -> tuple[str, UUID]:
    return ("", UUID(bytes=token)) if by_id else (token.decode(), UUID(int=0))


# ── requests ──


def produce_seen(view: memoryview, ask: produce.ProduceBody, by_id: bool) -> tuple[Any, ...]:
    topics = [
        (
            name_or_id(token, by_id),
            [(row.index, None if row.stop < 0 else bytes(view[row.start : row.stop])) for row in rows],
        )
        for token, rows in ask.topics
    ]
    transactional_id = None if ask.transactional_id is None else ask.transactional_id.decode()
    return transactional_id, ask.acks, ask.timeout_ms, topics


def produce_meant(request: ProduceRequest, by_id: bool) -> tuple[Any, ...]:
    topics = [
        (("", topic.topic_id) if by_id else (topic.name, UUID(int=0)), [(each.index, each.records) for each in rows])
        for topic in request.topic_data
        for rows in [topic.partition_data]
    ]
    return request.transactional_id, request.acks, request.timeout_ms, topics


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@few
@given(data=st.data())
def test_produce_requests_are_read_as_declared(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(ProduceRequest, version))
    view = memoryview(HEAD + encode(request, version))
    ask = produce.read_produce(view, len(HEAD), version)
    by_id = version >= produce.PRODUCE_BY_ID
    assert produce_seen(view, ask, by_id) == produce_meant(request, by_id)


def _fields(row: fetch.FetchPartition) -> tuple[int, ...]:
    return row.partition, row.leader_epoch, row.offset, row.last_fetched_epoch, row.most_bytes, row.log_start


def seen(kind: type, view: memoryview, ask: Any, version: int) -> tuple[Any, ...]:
    if kind is ProduceRequest:
        return produce_seen(view, ask, version >= produce.PRODUCE_BY_ID)
    return fetch_seen(ask, version >= fetch.FETCH_BY_ID)


def fetch_seen(ask: fetch.FetchBody, by_id: bool) -> tuple[Any, ...]:
    return (
        *ask[:7],
        [(name_or_id(token, by_id), [_fields(row) for row in rows]) for token, rows in ask.topics],
        [(name_or_id(token, by_id), rows) for token, rows in ask.forgotten],
        ask.rack.decode(),
        ask.replica_epoch,
    )


def fetch_meant(request: FetchRequest, version: int) -> tuple[Any, ...]:
    def name(topic: Any) -> tuple[str, UUID]:
        return ("", topic.topic_id) if version >= fetch.FETCH_BY_ID else (topic.topic, UUID(int=0))

    topics = [
        (
            name(topic),
            [
                (
                    each.partition,
                    each.current_leader_epoch,
                    each.fetch_offset,
                    each.last_fetched_epoch,
                    each.partition_max_bytes,
                    each.log_start_offset,
                )
                for each in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    forgotten = [(name(topic), list(topic.partitions)) for topic in request.forgotten_topics_data]
    return (
        request.replica_state.replica_id,
        request.max_wait_ms,
        request.min_bytes,
        request.max_bytes,
        request.isolation_level,
        request.session_id,
        request.session_epoch,
        topics,
        forgotten,
        request.rack_id,
        request.replica_state.replica_epoch,
    )


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@few
@given(data=st.data())
def test_fetch_requests_are_read_as_declared(version: int, data: st.DataObject) -> None:
    request = data.draw(messages(FetchRequest, version))
    ask = fetch.read_fetch(memoryview(HEAD + encode(request, version)), len(HEAD), version)
    assert fetch_seen(ask, version >= fetch.FETCH_BY_ID) == fetch_meant(request, version)


# ── responses ──


def body_of(frame: bytes, key: int, version: int, correlation: int) -> memoryview:
    """The body of a response frame whose length and header are right."""
    assert int.from_bytes(frame[:4]) == len(frame) - 4
    found, at = read_response_header(key, version, memoryview(frame)[4:])
    assert found == correlation
    return memoryview(frame)[4 + at :]


def produce_results(version: int) -> st.SearchStrategy[Any]:
    errors = st.lists(st.tuples(INT32, TEXTS), max_size=2).map(tuple)
    leaders = st.none() | st.tuples(INT32, INT32)
    result = st.builds(produce.ProduceResult, INT32, CODES, INT64, INT64, INT64, TEXTS, errors, leaders)
    plain = st.builds(produce.ProduceResult, INT32, CODES, INT64, INT64, INT64, st.none(), st.just(()), st.none())
    return st.lists(
        st.tuples(tokens(version >= produce.PRODUCE_BY_ID), st.lists(plain | result, max_size=3)), max_size=3
    )


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@few
@given(data=st.data())
def test_produce_responses_are_packed_as_declared(version: int, data: st.DataObject) -> None:
    topics = data.draw(produce_results(version))
    correlation, throttle_ms = data.draw(INT32), data.draw(st.just(0) | INT32)
    frame = produce.pack_produce(version, correlation, topics, throttle_ms=throttle_ms)
    response = decode(ProduceResponse, version, body_of(frame, PRODUCE, version, correlation))
    assert response.throttle_time_ms == throttle_ms
    assert len(response.responses) == len(topics)
    for (token, results), topic in zip(topics, response.responses, strict=True):
        assert (topic.name, topic.topic_id) == name_or_id(token, version >= produce.PRODUCE_BY_ID)
        for told, got in zip(results, topic.partition_responses, strict=True):
            assert (got.index, got.error_code) == (told.partition, told.error)
            assert (got.base_offset, got.log_append_time_ms) == (told.base_offset, told.append_time)
            assert got.log_start_offset == (told.log_start if version >= 5 else -1)
            assert got.error_message == (told.message if version >= 8 else None)
            wanted = told.record_errors if version >= 8 else ()
            assert got.record_errors == tuple(
                BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text) for index, text in wanted
            )
            leader = (told.leader or (-1, -1)) if version >= produce.PRODUCE_LEADERS else (-1, -1)
            assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == leader


def fetch_results(version: int) -> st.SearchStrategy[Any]:
    pieces = st.none() | st.binary(min_size=1, max_size=300).map(piece)
    diverging = st.none() | st.tuples(INT32, INT64) if version >= 12 else st.none()
    aborted = st.none() | st.lists(st.tuples(INT64, INT64), max_size=3)
    leaders = st.none() | st.tuples(INT32, INT32)
    result = st.builds(
        fetch.FetchResult,
        INT32,
        CODES,
        INT64,
        INT64,
        INT64,
        pieces,
        diverging,
        aborted,
        st.integers(-1, 2**31 - 1),
        leaders,
    )
    return st.lists(st.tuples(tokens(version >= fetch.FETCH_BY_ID), st.lists(result, max_size=3)), max_size=3)


@pytest.mark.parametrize("version", FETCH_VERSIONS)
@few
@given(data=st.data())
def test_fetch_responses_are_packed_as_declared(version: int, data: st.DataObject) -> None:
    topics = data.draw(fetch_results(version))
    correlation, code, session = data.draw(INT32), data.draw(CODES), data.draw(INT32)
    throttle_ms = data.draw(st.just(0) | INT32)
    parts = fetch.pack_fetch(version, correlation, code, session, topics, throttle_ms=throttle_ms)
    frame = b"".join(map(data_of, parts))
    response = decode(FetchResponse, version, body_of(frame, FETCH, version, correlation))
    assert response.throttle_time_ms == throttle_ms
    assert (response.error_code, response.session_id) == ((code, session) if version >= 7 else (0, 0))
    assert len(response.responses) == len(topics)
    for (token, results), topic in zip(topics, response.responses, strict=True):
        assert (topic.topic, topic.topic_id) == name_or_id(token, version >= fetch.FETCH_BY_ID)
        for told, got in zip(results, topic.partitions, strict=True):
            assert (got.partition_index, got.error_code) == (told.partition, told.error)
            assert (got.high_watermark, got.last_stable_offset) == (told.high_watermark, told.last_stable)
            assert got.log_start_offset == (told.log_start if version >= 5 else -1)
            aborted = (
                None
                if told.aborted is None
                else tuple(
                    AbortedTransaction(producer_id=producer_id, first_offset=first)
                    for producer_id, first in told.aborted
                )
            )
            assert got.aborted_transactions == aborted
            assert got.preferred_read_replica == (told.preferred if version >= 11 else -1)
            named = version >= fetch.FETCH_LEADERS and told.diverging is None
            leader = (told.leader or (-1, -1)) if named else (-1, -1)
            assert (got.current_leader.leader_id, got.current_leader.leader_epoch) == leader
            assert got.records == (data_of(told.records) if told.records else b"")  # never null
            epoch, end = told.diverging or (-1, -1)
            assert got.diverging_epoch == EpochEndOffset(epoch=epoch, end_offset=end)


def test_a_fetch_response_ends_with_no_empty_piece() -> None:
    """An empty buffer at the end would be one more system call for nothing."""
    result = fetch.FetchResult(0, 0, 1, 1, 0, piece(b"records"))
    for version in FETCH_VERSIONS:
        parts = fetch.pack_fetch(version, 1, 0, 0, [(b"0123456789abcdef", [result])])
        assert all(not isinstance(part, (bytes, bytearray)) or part for part in parts)


@few
@given(row=st.builds(produce.ProduceResult, INT32, st.just(0), INT64, INT64, INT64), correlation=INT32, data=st.data())
def test_one_appended_batch_is_packed_as_any_other(
    row: produce.ProduceResult, correlation: int, data: st.DataObject
) -> None:
    for version in PRODUCE_VERSIONS:
        token = data.draw(tokens(version >= produce.PRODUCE_BY_ID))
        packed = produce.pack_appended(version, correlation, token, row)
        assert packed == produce.pack_produce(version, correlation, [(token, [row])])


# ── requests that repeat ──


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@few
@given(data=st.data())
def test_requests_of_one_connection_are_read_as_alone(version: int, data: st.DataObject) -> None:
    """Requests with equal beginnings, and others between them."""
    repeated = produce.RepeatedProduce()
    one = data.draw(messages(ProduceRequest, version))
    for _ in range(data.draw(st.integers(1, 6))):
        request = data.draw(st.just(one) | messages(ProduceRequest, version))
        if data.draw(st.booleans()):
            request = with_records(request, data.draw(st.binary(max_size=300)))
        body = bytearray(encode(request, version))
        if data.draw(st.integers(0, 4)) == 0:  # spoiled
            at = data.draw(st.integers(0, len(body)))
            body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
        view = memoryview(HEAD + bytes(body))
        try:
            alone = produce.read_produce(view, len(HEAD), version)
        except MalformedMessage:
            with pytest.raises(MalformedMessage):
                repeated.read(view, len(HEAD), version)
            continue
        assert bytes_seen(view, repeated.read(view, len(HEAD), version)) == bytes_seen(view, alone)


def bytes_seen(view: memoryview, ask: produce.ProduceBody) -> tuple[Any, ...]:
    """As `produce_seen`, of a request whose texts may be spoiled."""
    topics = [
        (token, [(row.index, None if row.stop < 0 else bytes(view[row.start : row.stop])) for row in rows])
        for token, rows in ask.topics
    ]
    return ask.transactional_id, ask.acks, ask.timeout_ms, topics


def with_records(request: Any, records: bytes) -> Any:
    """The request with other records in its first partition."""
    if not request.topic_data or not request.topic_data[0].partition_data:
        return request
    topic, *topics = request.topic_data
    partition, *partitions = topic.partition_data
    first = PartitionProduceData(index=partition.index, records=records)
    changed = TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=(first, *partitions))
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=(changed, *topics),
    )


# ── hostile bytes ──


READERS = [(produce.read_produce, ProduceRequest, version) for version in PRODUCE_VERSIONS] + [
    (fetch.read_fetch, FetchRequest, version) for version in FETCH_VERSIONS
]
each_reader = pytest.mark.parametrize(("read", "kind", "version"), READERS)


@each_reader
def test_a_request_cut_at_any_byte_is_malformed(read: Any, kind: type, version: int) -> None:
    body = encode(sample(kind, version), version)
    for size in range(len(body)):
        with pytest.raises(MalformedMessage):
            read(memoryview(HEAD + body[:size]), len(HEAD), version)
    whole, longer = memoryview(HEAD + body), memoryview(HEAD + body + b"\0")
    longer_seen = seen(kind, longer, read(longer, len(HEAD), version), version)
    assert longer_seen == seen(kind, whole, read(whole, len(HEAD), version), version)  # Kafka never looked behind it


@each_reader
@few
@given(noise=st.binary(max_size=80))
def test_noise_is_read_or_malformed(read: Any, kind: type, version: int, noise: bytes) -> None:
    with suppress(MalformedMessage):
        read(memoryview(noise), 0, version)


@each_reader
@few
@given(data=st.data())
def test_of_spoiled_requests_both_readers_see_the_same(
    read: Any, kind: type, version: int, data: st.DataObject
) -> None:
    """What the declared codec takes the hot one takes too; it may take more, as it looks into fewer tags and texts."""
    body = bytearray(encode(data.draw(messages(kind, version)), version))
    at = data.draw(st.integers(0, len(body)))
    body[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=3))
    view = memoryview(bytes(body))
    try:
        request: Any = decode(kind, version, view, exact=False)
    except MalformedMessage:
        with suppress(MalformedMessage):
            read(view, 0, version)
        return
    found = seen(kind, view, read(view, 0, version), version)
    if kind is ProduceRequest:
        assert found == produce_meant(request, version >= produce.PRODUCE_BY_ID)
    else:
        assert found == fetch_meant(request, version)


@each_reader
def test_unknown_tags_are_skipped(read: Any, kind: type, version: int) -> None:
    if version < (produce.PRODUCE_FLEXIBLE if kind is ProduceRequest else fetch.FETCH_FLEXIBLE):
        pytest.skip("this version has no tags")
    body = encode(kind(**EMPTY[kind]), version)
    assert body[-1] == 0
    tagged = body[:-1] + b"\x02" + b"\x63\x03abc" + b"\xe8\x07\x00"
    with_tags, without = memoryview(tagged), memoryview(body)
    assert seen(kind, with_tags, read(with_tags, 0, version), version) == seen(
        kind, without, read(without, 0, version), version
    )


EMPTY: dict[type, dict[str, Any]] = {
    ProduceRequest: {"acks": 1, "timeout_ms": 1, "topic_data": ()},
    FetchRequest: {"max_wait_ms": 1, "min_bytes": 1, "topics": ()},
}
