"""Fetch as a follower speaks it: the request packed and the response read by hand. The leader's side is in `hot`.

One version is spoken, 17: by topic id, with the follower's id and broker epoch as tags. Records are a stretch
`(start, stop)` of the response's frame; nothing is copied.
"""

from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple

from moldau.wire.primitives import SHORT_READ, MalformedMessage, read_uvarint, uvarint

FETCH = 1
VERSION = 17
PARTITIONS_AT_MOST = 100_000  # that one response may hold

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
    """What a follower asks of one partition."""

    partition: int
    leader_epoch: int
    offset: int
    last_fetched_epoch: int
    log_start: int
    most_bytes: int


class Fetched(NamedTuple):
    """What a leader answers for one partition."""

    partition: int
    error: int
    high_watermark: int
    log_start: int
    start: int  # of the records, in the frame
    stop: int
    diverging: tuple[int, int] | None  # the leader's epoch, and where it ended


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
    """The body of a request. `replica` is the follower's id and broker epoch, `session` its id and epoch."""
    out = [_HEAD.pack(*limits, 0, *session), uvarint(len(topics) + 1)]
    for topic_id, rows in topics:
        out += (topic_id, uvarint(len(rows) + 1), b"".join([_ROW.pack(*row) for row in rows]), b"\0")
    out.append(uvarint(len(forgotten) + 1))
    for topic_id, indexes in forgotten:
        out += (topic_id, uvarint(len(indexes) + 1), Struct(f">{len(indexes)}i").pack(*indexes), b"\0")
    out += (b"\x01", _REPLICA.pack(1, 1, 13, *replica))  # no rack; the tags
    return b"".join(out)


def read_fetch_response(view: memoryview, at: int) -> FetchedAll:
    """The body of a response."""
    try:
        return _read(view, at)
    except SHORT_READ:
        raise MalformedMessage("the fetch response ends too early") from None


def _read(view: memoryview, at: int) -> FetchedAll:
    throttle_ms, error, session_id = _ANSWER_HEAD.unpack_from(view, at)
    count, at = _count(view, at + _ANSWER_HEAD.size)
    topics: list[tuple[bytes, list[Fetched]]] = []
    seen = 0
    for _ in range(count):
        topic_id = bytes(view[at : at + 16])
        size, at = _count(view, at + 16)
        seen += size
        if seen > PARTITIONS_AT_MOST:
            raise MalformedMessage(f"a fetch response has more than {PARTITIONS_AT_MOST} partitions")
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
        raise MalformedMessage(f"an array of {count - 1} elements does not fit into its response")
    return max(count - 1, 0), at


def _read_row(view: memoryview, at: int) -> tuple[Fetched, int]:
    partition, error, high_watermark, _, log_start = _ANSWER_ROW.unpack_from(view, at)
    aborted, at = _count(view, at + _ANSWER_ROW.size)
    at += aborted * _ABORTED_SIZE + _NO_PREFERRED_SIZE  # followers are not told of aborted transactions
    size, at = read_uvarint(view, at)
    stop = at + max(size - 1, 0)
    if stop > len(view):
        raise MalformedMessage(f"{size - 1} bytes of records do not fit into their response")
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
            raise MalformedMessage(f"a tag of {size} bytes does not fit into its response")
        tags[tag] = view[at : at + size]
        at += size
    return tags, at
