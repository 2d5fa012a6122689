"""Fetch as a follower speaks it, held against the declared messages."""

from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.wire.codec import decode, encode
from moldau.wire.fetching import VERSION, FetchLimits, Wanted, pack_fetch_request, read_fetch_response
from moldau.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from moldau.wire.primitives import MalformedMessage

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
UUIDS = st.uuids()


@settings(max_examples=50)
@given(
    replica=st.tuples(INT32, INT64),
    limits=st.tuples(INT32, INT32, INT32),
    session=st.tuples(INT32, INT32),
    topics=st.lists(
        st.tuples(UUIDS, st.lists(st.builds(Wanted, INT32, INT32, INT64, INT32, INT64, INT32), max_size=3)), max_size=3
    ),
    forgotten=st.lists(st.tuples(UUIDS, st.lists(INT32, max_size=3)), max_size=3),
)
def test_a_request_says_what_the_declared_one_does(
    replica: tuple[int, int],
    limits: tuple[int, int, int],
    session: tuple[int, int],
    topics: list[tuple[UUID, list[Wanted]]],
    forgotten: list[tuple[UUID, list[int]]],
) -> None:
    by_bytes = [(topic.bytes, rows) for topic, rows in topics]
    body = pack_fetch_request(
        replica, FetchLimits(*limits), session, by_bytes, [(topic.bytes, rows) for topic, rows in forgotten]
    )
    request = decode(FetchRequest, VERSION, body)
    assert (request.replica_state.replica_id, request.replica_state.replica_epoch) == replica
    assert (request.max_wait_ms, request.min_bytes, request.max_bytes) == limits
    assert (request.session_id, request.session_epoch) == session
    assert [
        (
            topic.topic_id,
            [
                Wanted(
                    row.partition,
                    row.current_leader_epoch,
                    row.fetch_offset,
                    row.last_fetched_epoch,
                    row.log_start_offset,
                    row.partition_max_bytes,
                )
                for row in topic.partitions
            ],
        )
        for topic in request.topics
    ] == topics
    assert [(each.topic_id, list(each.partitions)) for each in request.forgotten_topics_data] == forgotten


def a_response() -> FetchResponse:
    rows = (
        PartitionData(
            partition_index=3,
            error_code=0,
            high_watermark=50,
            log_start_offset=2,
            records=b"records",
            aborted_transactions=None,
        ),
        PartitionData(
            partition_index=4,
            error_code=0,
            high_watermark=51,
            log_start_offset=0,
            records=b"",
            diverging_epoch=EpochEndOffset(epoch=7, end_offset=40),
            aborted_transactions=(AbortedTransaction(producer_id=1, first_offset=2),),
        ),
        PartitionData(
            partition_index=5,
            error_code=6,
            high_watermark=-1,
            records=None,
            aborted_transactions=(),
            current_leader=LeaderIdAndEpoch(leader_id=2, leader_epoch=9),
        ),
    )
    return FetchResponse(
        throttle_time_ms=4,
        error_code=0,
        session_id=77,
        responses=(FetchableTopicResponse(topic_id=UUID(int=5), partitions=rows),),
        node_endpoints=(NodeEndpoint(node_id=2, host="h", port=1, rack=None),),
    )  # fmt: skip


def test_a_response_is_read_as_it_is_declared() -> None:
    view = memoryview(b"....." + encode(a_response(), VERSION))
    found = read_fetch_response(view, 5)
    assert (found.error, found.session_id, found.throttle_ms) == (0, 77, 4)
    ((topic, rows),) = found.topics
    assert topic == UUID(int=5).bytes
    assert [(row.partition, row.error, row.high_watermark, row.log_start) for row in rows] == [
        (3, 0, 50, 2),
        (4, 0, 51, 0),
        (5, 6, -1, -1),
    ]
    assert [bytes(view[row.start : row.stop]) for row in rows] == [b"records", b"", b""]
    assert [row.diverging for row in rows] == [None, (7, 40), None]


def test_a_response_that_is_cut_or_lies_is_refused() -> None:
    body = encode(a_response(), VERSION)
    for size in range(len(body) - 30):
        with pytest.raises(MalformedMessage):
            read_fetch_response(memoryview(body[:size]), 0)
    lying = bytearray(body)
    lying[10] = 0x7F  # the number of topics
    with pytest.raises(MalformedMessage):
        read_fetch_response(memoryview(bytes(lying)), 0)


@given(data=st.binary(max_size=200))
def test_nonsense_is_refused_and_nothing_else_happens(data: bytes) -> None:
    try:
        read_fetch_response(memoryview(data), 0)
    except MalformedMessage:
        return
