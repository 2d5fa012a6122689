"""Fetch as a follower sends it: a hand-written encoder of requests and decoder of responses. `hot` has the leader's.

Version 17 only: topic ids, and the follower's id and broker epoch as tagged fields. Records are positions
`(start, stop)` in the frame of the response; nothing is copied.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from moldau.wire.primitives import SHORT_READ, MalformedMessage, read_uvarint, uvarint

FETCH = 1
VERSION = 17
MAX_PARTITIONS = 100_000  # of one response

_HEAD = Struct(">iiibii")  # wait, min bytes, max bytes, isolation, session, its epoch
_ROW = Struct(">iiqiqix")  # partition, leader epoch, offset, last fetched epoch, log start, max bytes, no tags
_INT32 = Struct(">i")
_REPLICA = Struct(">BBBiqx")  # one tag, number 1, of 13 bytes
_ANSWER_HEAD = Struct(">ihi")  # throttle time, error, session
_ANSWER_ROW = Struct(">ihqqq")
_DIVERGING = Struct(">iq")
_ABORTED_SIZE = 17
_NO_PREFERRED_SIZE = 4


class Wanted(NamedTuple):
    """One partition of a follower's fetch request."""

    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int
    most_bytes: int


class Fetched(NamedTuple):
    """One partition of the leader's response."""

    partition: int
    error: int
    high_watermark: int
    log_start: int
    start: int  # of the records, in the frame
    stop: int
    diverging: tuple[int, int] | None  # the leader's epoch, and its end offset


class FetchedAll(NamedTuple):
    error: int
    session_id: int
    throttle_ms: int
    topics: list[tuple[bytes, list[Fetched]]]


class FetchLimits(NamedTuple):
    wait_ms: int
    min_bytes: int
    max_bytes: int


def pack_fetch_request(
    replica: tuple[int, int],
    limits: FetchLimits,
    session: tuple[int, int],
    topics: Sequence[tuple[bytes, Sequence[Wanted]]],
    forgotten: Sequence[tuple[bytes, Sequence[int]]],
) -> bytes:
    """Encode a request body. `replica` is the follower's id and broker epoch, `session` a session's id and epoch."""
    out = [_HEAD.pack(*limits, 0, *session), uvarint(len(topics) + 1)]
    for topic_id, rows in topics:
        out += (topic_id, uvarint(len(rows) + 1), b"".join([_ROW.pack(*row) for row in rows]), b"\0")
    out.append(uvarint(len(forgotten) + 1))
    for topic_id, indexes in forgotten:
        out += (topic_id, uvarint(len(indexes) + 1), Struct(f">{len(indexes)}i").pack(*indexes), b"\0")
    out += (b"\x01", _REPLICA.pack(1, 1, 13, *replica))  # no rack; tagged fields
    return b"".join(out)


def read_fetch_response(view: memoryview, at: int) -> FetchedAll:
    """Decode a response body."""
    try:
        return _read(view, at)
    except SHORT_READ:
        raise MalformedMessage("the fetch response is truncated") from None


def _read(view: memoryview, at: int) -> FetchedAll:
    throttle_ms, error, session_id = _ANSWER_HEAD.unpack_from(view, at)
    count, at = _count(view, at + _ANSWER_HEAD.size)
    topics: list[tuple[bytes, list[Fetched]]] = []
    seen = 0
    for _ in range(count):
        topic_id = bytes(view[at : at + 16])
        size, at = _count(view, at + 16)
        seen += size
        if seen > MAX_PARTITIONS:
            raise MalformedMessage(f"a fetch response has more than {MAX_PARTITIONS} partitions")
        rows: list[Fetched] = []
        for _ in range(size):
            row, at = _read_row(view, at)
            rows.append(row)
        topics.append((topic_id, rows))
        _, at = _read_tags(view, at)
    return FetchedAll(error, session_id, throttle_ms, topics)


def _count(view: memoryview, at: int) -> tuple[int, int]:
    count, at = read_uvarint(view, at)
    if count - 1 > len(view) - at:
        raise MalformedMessage(f"an array of {count - 1} elements exceeds the response")
    return max(count - 1, 0), at


def _read_row(view: memoryview, at: int) -> tuple[Fetched, int]:
    partition, error, high_watermark, _, log_start = _ANSWER_ROW.unpack_from(view, at)
    aborted, at = _count(view, at + _ANSWER_ROW.size)
    at += aborted * _ABORTED_SIZE + _NO_PREFERRED_SIZE  # followers do not need aborted transactions
    size, at = read_uvarint(view, at)
    stop = at + max(size - 1, 0)
    if stop > len(view):
        raise MalformedMessage(f"{size - 1} bytes of records exceed the response")
    tags, behind = _read_tags(view, stop)
    diverging = tags.get(0)
    found = None if diverging is None else _DIVERGING.unpack_from(diverging)
    return Fetched(partition, error, high_watermark, log_start, at, stop, found), behind


_NO_TAGS: dict[int, memoryview] = {}


def _read_tags(view: memoryview, at: int) -> tuple[dict[int, memoryview], int]:
    if view[at] == 0:
        return _NO_TAGS, at + 1
    count, at = read_uvarint(view, at)
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        if size > len(view) - at:
            raise MalformedMessage(f"a tagged field of {size} bytes exceeds the response")
        tags[tag] = view[at : at + size]
        at += size
    return tags, at
