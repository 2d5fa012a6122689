"""Fetch, decoded and encoded by hand. `wire.messages.fetch` declares the same message, and tests compare the two.

A response is bytes and, between them, slices of log segments, which are never read here.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from moldau.base.slices import FileSlice
from moldau.wire.hot.fields import (
    INT16,
    INT32,
    NodeEndpoint,
    array,
    bounded,
    checked_count,
    endpoints_tag,
    leader_tag,
    pack_token,
    skip_tags,
    stretch,
)
from moldau.wire.primitives import SHORT_READ, MalformedMessage, read_uvarint, uvarint

FETCH_FLEXIBLE: Final = 12
FETCH_BY_ID: Final = 13
FETCH_LEADERS: Final = 16


class FetchPartition:
    __slots__ = ("last_fetched_epoch", "leader_epoch", "log_start", "most_bytes", "offset", "partition")

    def __init__(
        self,
        partition: int,
        leader_epoch: int,
        offset: int,
        last_fetched_epoch: int,
        most_bytes: int,
        log_start: int = -1,
    ) -> None:
        """`leader_epoch`: known to the client, or -1. `log_start`: of a follower."""
        self.partition = partition
        self.leader_epoch = leader_epoch
        self.offset = offset
        self.last_fetched_epoch = last_fetched_epoch
        self.most_bytes = most_bytes
        self.log_start = log_start


class FetchBody(NamedTuple):
    replica_id: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: int
    session_id: int
    session_epoch: int
    topics: list[tuple[bytes, list[FetchPartition]]]
    forgotten: list[tuple[bytes, list[int]]]
    rack: bytes = b""
    replica_epoch: int = -1  # the follower's broker epoch (KIP-903)


class FetchResult:
    __slots__ = (
        "aborted",
        "diverging",
        "error",
        "high_watermark",
        "last_stable",
        "leader",
        "log_start",
        "partition",
        "preferred",
        "records",
    )

    def __init__(
        self,
        partition: int,
        error: int,
        high_watermark: int,
        last_stable: int,
        log_start: int,
        records: FileSlice | None = None,
        diverging: tuple[int, int] | None = None,
        aborted: Sequence[tuple[int, int]] | None = None,
        preferred: int = -1,
        leader: tuple[int, int] | None = None,
    ) -> None:
        """`diverging`: epoch and its end offset (KIP-595).

        `aborted`: producer id and first offset of aborted transactions; null unless read_committed. `preferred`: the
        preferred read replica of this consumer (KIP-392). `leader`: current leader and epoch, if it is another broker
        (KIP-951).
        """
        self.partition = partition
        self.error = error
        self.high_watermark = high_watermark
        self.last_stable = last_stable
        self.log_start = log_start
        self.records = records
        self.diverging = diverging
        self.aborted = aborted
        self.preferred = preferred
        self.leader = leader


_FETCH_HEAD: Final = Struct(">iiiib")  # replica, wait, min, max, isolation
_FETCH_HEAD_15: Final = Struct(">iiib")  # the replica id is a tagged field
_SESSION: Final = Struct(">ii")
_REPLICA: Final = Struct(">iq")
_FETCH_ROW_4: Final = Struct(">iqi")
_FETCH_ROW_5: Final = Struct(">iqqi")
_FETCH_ROW_9: Final = Struct(">iiqqi")
_FETCH_ROW_12: Final = Struct(">iiqiqi")


def read_fetch(view: memoryview, at: int, version: int) -> FetchBody:
    """Decode the body of a Fetch request, versions 4 to 18."""
    try:
        return _read_fetch(view, at, version)
    except SHORT_READ:
        raise MalformedMessage("the Fetch request is truncated") from None


def _read_fetch(view: memoryview, at: int, version: int) -> FetchBody:
    flexible = version >= FETCH_FLEXIBLE
    replica_id = -1
    if version >= 15:
        wait, least, most, isolation = _FETCH_HEAD_15.unpack_from(view, at)
        at += 13
    else:
        replica_id, wait, least, most, isolation = _FETCH_HEAD.unpack_from(view, at)
        at += 17
    session_id, session_epoch = 0, -1
    if version >= 7:
        session_id, session_epoch = _SESSION.unpack_from(view, at)
        at += 8
    count, at = _read_array(view, at, flexible)
    topics: list[tuple[bytes, list[FetchPartition]]] = []
    seen = 0
    for _ in range(count):
        token, at = _read_token(view, at, version)
        partitions, at = _read_fetch_partitions(view, at, version, seen)
        topics.append((token, partitions))
        seen += len(partitions) + 1
        if flexible:
            at = at + 1 if view[at] == 0 else skip_tags(view, at)
    forgotten: list[tuple[bytes, list[int]]] = []
    if version >= 7:
        forgotten, at = _read_forgotten(view, at, version)
    rack = b""
    if version >= 11:
        size, at = read_uvarint(view, at) if flexible else (INT16.unpack_from(view, at)[0] + 1, at + 2)
        stop = stretch(view, at, size - 1)
        if size > 1:
            rack = bytes(view[at:stop])
        at = stop
    epoch = -1
    if flexible and view[at]:
        replica_id, epoch = _read_fetch_tags(view, at, version, replica_id)
    session = (session_id, session_epoch)
    return FetchBody(replica_id, wait, least, most, isolation, *session, topics, forgotten, rack, epoch)


def _read_array(view: memoryview, at: int, flexible: bool) -> tuple[int, int]:
    if flexible:
        count, at = read_uvarint(view, at)
        return checked_count(view, at, count - 1), at
    (count,) = INT32.unpack_from(view, at)
    return checked_count(view, at + 4, count), at + 4


def _read_token(view: memoryview, at: int, version: int) -> tuple[bytes, int]:
    if version >= FETCH_BY_ID:
        stop = stretch(view, at, 16)
    elif version >= FETCH_FLEXIBLE:
        size, at = read_uvarint(view, at)
        stop = stretch(view, at, size - 1)
    else:
        (size,) = INT16.unpack_from(view, at)
        at += 2
        stop = stretch(view, at, size)
    return bytes(view[at:stop]), stop


def _read_fetch_partitions(view: memoryview, at: int, version: int, seen: int) -> tuple[list[FetchPartition], int]:
    count, at = _read_array(view, at, version >= FETCH_FLEXIBLE)
    bounded(seen + count + 1)
    partitions: list[FetchPartition] = []
    for _ in range(count):
        fetched = epoch = log_start = -1
        if version >= 12:
            index, epoch, offset, fetched, log_start, most = _FETCH_ROW_12.unpack_from(view, at)
            at += 32
            at = at + 1 if view[at] == 0 else skip_tags(view, at)
        elif version >= 9:
            index, epoch, offset, log_start, most = _FETCH_ROW_9.unpack_from(view, at)
            at += 28
        elif version >= 5:
            index, offset, log_start, most = _FETCH_ROW_5.unpack_from(view, at)
            at += 24
        else:
            index, offset, most = _FETCH_ROW_4.unpack_from(view, at)
            at += 16
        partitions.append(FetchPartition(index, epoch, offset, fetched, most, log_start))
    return partitions, at


def _read_forgotten(view: memoryview, at: int, version: int) -> tuple[list[tuple[bytes, list[int]]], int]:
    flexible = version >= FETCH_FLEXIBLE
    count, at = _read_array(view, at, flexible)
    forgotten: list[tuple[bytes, list[int]]] = []
    seen = 0
    for _ in range(count):
        token, at = _read_token(view, at, version)
        size, at = _read_array(view, at, flexible)
        seen = bounded(seen + size + 1)
        forgotten.append((token, list(Struct(f">{size}i").unpack_from(view, at))))
        at += 4 * size
        if flexible:
            at = skip_tags(view, at)
    return forgotten, at


def _read_fetch_tags(view: memoryview, at: int, version: int, replica_id: int) -> tuple[int, int]:
    """Replica id and broker epoch, which are in tag 1 from version 15 on; other tags are skipped."""
    epoch = -1
    count, at = read_uvarint(view, at)
    for _ in range(checked_count(view, at, count)):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        stop = stretch(view, at, size)
        if tag == 1 and version >= 15:
            replica_id, epoch = _REPLICA.unpack_from(view[:stop], at)
        at = stop
    return replica_id, epoch


_FETCH_RESPONSE_4: Final = Struct(">iii")  # length, correlation id, throttle time
_FETCH_RESPONSE_12: Final = Struct(">iixi")  # with no header tags between
_FETCH_RESULT_4: Final = Struct(">ihqq")
_FETCH_RESULT_5: Final = Struct(">ihqqq")
_NO_PREFERRED: Final = INT32.pack(-1)
_DIVERGING: Final = Struct(">iq")
_ABORTED: Final = Struct(">qq")


def pack_fetch(
    version: int,
    correlation: int,
    code: int,
    session_id: int,
    topics: list[tuple[bytes, list[FetchResult]]],
    endpoints: Sequence[NodeEndpoint] = (),
    *,
    throttle_ms: int = 0,
) -> list[bytes | bytearray | FileSlice]:
    """Encode a Fetch response with its header, as a frame: bytes, and between them slices of log segments."""
    flexible = version >= FETCH_FLEXIBLE
    head = bytearray((_FETCH_RESPONSE_12 if flexible else _FETCH_RESPONSE_4).pack(0, correlation, throttle_ms))
    if version >= 7:
        head += INT16.pack(code) + INT32.pack(session_id)
    head += array(len(topics), flexible)
    parts: list[bytes | bytearray | FileSlice] = [head]
    current = head
    length = 0
    for token, results in topics:
        current += pack_token(token, version >= FETCH_BY_ID, flexible)
        current += array(len(results), flexible)
        for result in results:
            current += _fetch_row(version, result)
            records = result.records
            if records is None:
                current += (b"\x01" if flexible else b"\0\0\0\0") + _fetch_row_tags(version, result)
                continue
            size = records.length
            current += uvarint(size + 1) if flexible else INT32.pack(size)
            length += len(current) + size
            current = bytearray(_fetch_row_tags(version, result))
            parts.append(records)
            parts.append(current)
        if flexible:
            current += b"\0"
    if flexible:
        current += endpoints_tag(endpoints) if endpoints and version >= FETCH_LEADERS else b"\0"
    INT32.pack_into(head, 0, length + len(current) - 4)
    if not current:
        parts.pop()
    return parts


def _fetch_row(version: int, result: FetchResult) -> bytes:
    aborted, preferred = result.aborted, result.preferred
    fields = (result.partition, result.error, result.high_watermark, result.last_stable)
    row: bytes = _FETCH_RESULT_5.pack(*fields, result.log_start) if version >= 5 else _FETCH_RESULT_4.pack(*fields)
    if version >= FETCH_FLEXIBLE:
        row += b"\x00" if aborted is None else array(len(aborted), True)
    else:
        row += b"\xff\xff\xff\xff" if aborted is None else INT32.pack(len(aborted))
    if aborted:
        tags = b"\0" if version >= FETCH_FLEXIBLE else b""
        row += b"".join([_ABORTED.pack(*each) + tags for each in aborted])
    if version < 11:
        return row
    return row + (_NO_PREFERRED if preferred < 0 else INT32.pack(preferred))


def _fetch_row_tags(version: int, result: FetchResult) -> bytes:
    if version < FETCH_FLEXIBLE:
        return b""
    if result.diverging is None:
        return leader_tag(1, result.leader) if result.leader is not None and version >= FETCH_LEADERS else b"\0"
    return b"\x01\x00" + bytes((_DIVERGING.size + 1,)) + _DIVERGING.pack(*result.diverging) + b"\0"
