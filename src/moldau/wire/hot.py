"""Hand-written codecs of Produce and Fetch, the two APIs where a microsecond per partition counts.

`wire.messages.produce` and `wire.messages.fetch` declare the same messages, and tests compare the two. A topic is
identified by its *token*: the bytes of its name, or from version 13 on the sixteen bytes of its id. Records are never
copied out of a request: they are positions `(start, stop)` in the frame.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final, NamedTuple

from moldau.base.slices import FileSlice
from moldau.wire.primitives import SHORT_READ, MalformedMessage, continue_uvarint, read_uvarint, uvarint
from moldau.wire.primitives import skip_tags as skip_tag_fields

PRODUCE_FLEXIBLE: Final = 9
PRODUCE_BY_ID: Final = 13
PRODUCE_LEADERS: Final = 10  # an error names the current leader (KIP-951)
FETCH_FLEXIBLE: Final = 12
FETCH_BY_ID: Final = 13
FETCH_LEADERS: Final = 16

MAX_PARTITIONS: Final = 50_000  # of one Produce or Fetch request

_INT16: Final = Struct(">h")
_INT32: Final = Struct(">i")
_ACKS_TIMEOUT: Final = Struct(">hi")
_UINT32: Final = Struct(">I")
_LENGTH_CORRELATION: Final = Struct(">ii")
_NOT_THROTTLED: Final = _INT32.pack(0)
_NO_TAGS: Final[bytes] = b"\0\0\0"  # of the last partition, of its topic, of the request
_NO_TAGS_SIZE: Final = 3


class ProducePartition:
    """Where the records of one partition are in the frame; `stop` is -1 for null records."""

    __slots__ = ("index", "start", "stop")

    def __init__(self, index: int, start: int, stop: int) -> None:
        self.index = index
        self.start = start
        self.stop = stop


class ProduceBody:
    __slots__ = ("acks", "timeout_ms", "topics", "transactional_id")

    def __init__(
        self,
        transactional_id: bytes | None,
        acks: int,
        timeout_ms: int,
        topics: list[tuple[bytes, list[ProducePartition]]],
    ) -> None:
        self.transactional_id = transactional_id
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topics = topics


class ProduceResult:
    __slots__ = ("append_time", "base_offset", "error", "leader", "log_start", "message", "partition", "record_errors")

    def __init__(
        self,
        partition: int,
        error: int,
        base_offset: int,
        append_time: int,
        log_start: int,
        message: str | None = None,
        record_errors: Sequence[tuple[int, str | None]] = (),
        leader: tuple[int, int] | None = None,
    ) -> None:
        """`leader`: current leader and epoch, if it is another broker (KIP-951)."""
        self.partition = partition
        self.error = error
        self.base_offset = base_offset
        self.append_time = append_time
        self.log_start = log_start
        self.message = message
        self.record_errors = record_errors
        self.leader = leader


class NodeEndpoint(NamedTuple):
    """The endpoint of a current leader that a response names (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None


def skip_tags(view: memoryview, at: int) -> int:
    """Skip unknown tagged fields (KIP-482)."""
    count, at = read_uvarint(view, at)
    return skip_tag_fields(view, at, count) if count else at


def _count(view: memoryview, at: int, count: int) -> int:
    """Check the count of an array: an element takes at least one byte."""
    if count < 0 or count > len(view) - at:
        raise MalformedMessage(f"an array of {count} elements exceeds the request")
    return count


def _bounded(seen: int) -> int:
    """Check the number of partitions: reading too many would block the event loop."""
    if seen > MAX_PARTITIONS:
        raise MalformedMessage(f"the request has more than {MAX_PARTITIONS} partitions")
    return seen


def _stretch(view: memoryview, at: int, size: int) -> int:
    stop = at + size
    if size < 0 or stop > len(view):
        raise MalformedMessage(f"a field of {size} bytes exceeds the request")
    return stop


class RepeatedProduce:
    """The last Produce request of a connection, by which the next one is recognised.

    A producer that writes one batch of one partition at a time sends the same bytes again and again up to the size of
    the records. They are compared, not decoded.
    """

    __slots__ = ("_body", "_partition", "_prefix", "_size", "_version")

    def __init__(self) -> None:
        self._prefix = b""  # from the body's beginning up to the size of the records
        self._size = 0  # of the prefix; 0: no request to compare with
        self._version = 0
        self._body = ProduceBody(None, 0, 0, [])
        self._partition = ProducePartition(0, 0, 0)

    def read(self, view: memoryview, at: int, version: int) -> ProduceBody:
        """As `read_produce`. The result is valid until the next request, unless it has a transactional id."""
        size = self._size
        if size and version == self._version and bytes(view[at : at + size]) == self._prefix:
            at += size
            end = len(view) - _NO_TAGS_SIZE
            if at < end and view[end:] == _NO_TAGS:
                length, start = read_uvarint(view, at)
                if start + length - 1 == end and length:
                    partition = self._partition
                    partition.start = start
                    partition.stop = end
                    return self._body
            at -= size
        body = read_produce(view, at, version)
        self._remember(view, at, version, body)
        return body

    def _remember(self, view: memoryview, at: int, version: int, body: ProduceBody) -> None:
        self._size = 0
        if version < PRODUCE_FLEXIBLE or body.transactional_id is not None or len(body.topics) != 1:
            return
        rows = body.topics[0][1]
        if len(rows) == 1 and rows[0].stop >= 0:
            row = rows[0]
            size = uvarint(row.stop - row.start + 1)
            size_at = row.start - len(size)
            if view[size_at : row.start] != size:
                return  # written with more bytes than necessary
            self._prefix = bytes(view[at:size_at])
            self._size = size_at - at
            self._version = version
            self._body = body
            self._partition = row


def read_produce(view: memoryview, at: int, version: int) -> ProduceBody:
    """Decode the body of a Produce request, versions 3 to 13."""
    try:
        return _read_produce_flexible(view, at, version) if version >= 9 else _read_produce_old(view, at)
    except SHORT_READ:
        raise MalformedMessage("the Produce request is truncated") from None


def _read_produce_flexible(view: memoryview, at: int, version: int) -> ProduceBody:
    transactional_id = None
    size, at = read_uvarint(view, at)
    if size:
        stop = _stretch(view, at, size - 1)
        transactional_id = bytes(view[at:stop])
        at = stop
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, at)
    topic_count, at = read_uvarint(view, at + 6)
    topics: list[tuple[bytes, list[ProducePartition]]] = []
    seen = 0
    end = len(view)
    for _ in range(_count(view, at, topic_count - 1)):
        if version >= PRODUCE_BY_ID:
            stop = at + 16
        else:
            size, at = read_uvarint(view, at)
            stop = _stretch(view, at, size - 1)
        token = bytes(view[at:stop])
        count, at = read_uvarint(view, stop)
        partitions: list[ProducePartition] = []
        seen = _bounded(seen + count)
        for _ in range(_count(view, at, count - 1)):
            (index,) = _INT32.unpack_from(view, at)
            size = view[at + 4]
            at += 5
            if size >= 0x80:
                size, at = continue_uvarint(view, at, size)
            stop = at + size - 1 if size else -1
            if stop > end:
                raise MalformedMessage(f"{size - 1} bytes of records exceed the request")
            partitions.append(ProducePartition(index, at, stop))
            at = at if stop < 0 else stop
            at = at + 1 if view[at] == 0 else skip_tags(view, at)
        topics.append((token, partitions))
        at = at + 1 if view[at] == 0 else skip_tags(view, at)
    skip_tags(view, at)
    return ProduceBody(transactional_id, acks, timeout_ms, topics)


def _read_produce_old(view: memoryview, at: int) -> ProduceBody:
    (size,) = _INT16.unpack_from(view, at)
    at += 2
    transactional_id = None
    if size != -1:
        stop = _stretch(view, at, size)
        transactional_id = bytes(view[at:stop])
        at = stop
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, at)
    (topic_count,) = _INT32.unpack_from(view, at + 6)
    at += 10
    topics: list[tuple[bytes, list[ProducePartition]]] = []
    seen = 0
    for _ in range(_count(view, at, topic_count)):
        (size,) = _INT16.unpack_from(view, at)
        at += 2
        stop = _stretch(view, at, size)
        token = bytes(view[at:stop])
        (count,) = _INT32.unpack_from(view, stop)
        at = stop + 4
        partitions: list[ProducePartition] = []
        seen = _bounded(seen + count + 1)
        for _ in range(_count(view, at, count)):
            (index,) = _INT32.unpack_from(view, at)
            (size,) = _INT32.unpack_from(view, at + 4)
            at += 8
            if size == -1:
                partitions.append(ProducePartition(index, at, -1))
                continue
            stop = _stretch(view, at, size)
            partitions.append(ProducePartition(index, at, stop))
            at = stop
        topics.append((token, partitions))
    return ProduceBody(transactional_id, acks, timeout_ms, topics)


_PRODUCE_ROW: Final = {  # version → (layout of a partition without an error message, its constant end)
    **dict.fromkeys((3, 4), (Struct(">ihqq"), b"")),
    **dict.fromkeys((5, 6, 7), (Struct(">ihqqq"), b"")),
    8: (Struct(">ihqqq"), b"\0\0\0\0\xff\xff"),
    **dict.fromkeys((9, 10, 11, 12, 13), (Struct(">ihqqq"), b"\x01\x00\x00")),
}


# A whole response with one partition: length, correlation id, number of topics and id of the topic, number of
# partitions, the partition's row, an empty array of record errors, the throttle time. A pad byte is a null message or
# an empty tag section.
_ONE_APPENDED: Final = Struct(">iixb16sbihqqqbxxxix")
_ONE_APPENDED_LENGTH: Final = _ONE_APPENDED.size - _INT32.size


def pack_appended(version: int, correlation: int, token: bytes, result: ProduceResult) -> bytes:
    """As `pack_produce`, for a request whose only batch was appended."""
    if version < PRODUCE_BY_ID:
        return pack_produce(version, correlation, [(token, [result])])
    return _ONE_APPENDED.pack(
        _ONE_APPENDED_LENGTH,
        correlation,
        2,  # counts are written with one added
        token,
        2,
        result.partition,
        0,
        result.base_offset,
        result.append_time,
        result.log_start,
        1,
        0,
    )


def pack_produce(
    version: int,
    correlation: int,
    topics: list[tuple[bytes, list[ProduceResult]]],
    endpoints: Sequence[NodeEndpoint] = (),
    *,
    throttle_ms: int = 0,
) -> bytes:
    """Encode a Produce response with its header, as a frame."""
    flexible = version >= PRODUCE_FLEXIBLE
    row, tail = _PRODUCE_ROW[version]
    with_start = version >= 5
    body = [b"\0" if flexible else b"", _array(len(topics), flexible)]
    for token, results in topics:
        body.append(_token(token, version >= PRODUCE_BY_ID, flexible))
        body.append(_array(len(results), flexible))
        for each in results:
            fields = (each.partition, each.error, each.base_offset, each.append_time)
            body.append(row.pack(*fields, each.log_start) if with_start else row.pack(*fields))
            if each.message is None and not each.record_errors and each.leader is None:
                body.append(tail)
            elif version >= 8:
                tags = _leader_tag(0, each.leader) if each.leader is not None and version >= PRODUCE_LEADERS else b"\0"
                body.append(_pack_produce_errors(each.message, each.record_errors, flexible, tags))
        if flexible:
            body.append(b"\0")
    body.append(_INT32.pack(throttle_ms) if throttle_ms else _NOT_THROTTLED)
    if flexible:
        body.append(_endpoints_tag(endpoints) if endpoints and version >= PRODUCE_LEADERS else b"\0")
    rest = b"".join(body)
    return _LENGTH_CORRELATION.pack(len(rest) + 4, correlation) + rest


def _pack_produce_errors(
    message: str | None, record_errors: Sequence[tuple[int, str | None]], flexible: bool, row_tags: bytes
) -> bytes:
    out = [_array(len(record_errors), flexible)]
    for batch_index, text in record_errors:
        out += (_INT32.pack(batch_index), _nullable(text, flexible), b"\0" if flexible else b"")
    out += (_nullable(message, flexible), row_tags if flexible else b"")
    return b"".join(out)


_LEADER: Final = Struct(">BBBii")  # one tagged field: its tag, its size, leader and epoch; no tagged fields within


def _leader_tag(tag: int, leader: tuple[int, int]) -> bytes:
    return _LEADER.pack(1, tag, 9, *leader) + b"\0"


def _endpoints_tag(endpoints: Sequence[NodeEndpoint]) -> bytes:
    rows = [
        _INT32.pack(each.node_id)
        + _nullable(each.host, True)
        + _INT32.pack(each.port)
        + _nullable(each.rack, True)
        + b"\0"
        for each in endpoints
    ]
    value = _array(len(rows), True) + b"".join(rows)
    return b"\x01\x00" + uvarint(len(value)) + value


def _array(count: int, flexible: bool) -> bytes:
    return uvarint(count + 1) if flexible else _INT32.pack(count)


def _token(token: bytes, by_id: bool, flexible: bool) -> bytes:
    if by_id:
        return token
    return (uvarint(len(token) + 1) if flexible else _INT16.pack(len(token))) + token


def _nullable(text: str | None, flexible: bool) -> bytes:
    if text is None:
        return b"\0" if flexible else b"\xff\xff"
    return _token(text.encode(), False, flexible)


# ── fetch ──


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
        size, at = read_uvarint(view, at) if flexible else (_INT16.unpack_from(view, at)[0] + 1, at + 2)
        stop = _stretch(view, at, size - 1)
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
        return _count(view, at, count - 1), at
    (count,) = _INT32.unpack_from(view, at)
    return _count(view, at + 4, count), at + 4


def _read_token(view: memoryview, at: int, version: int) -> tuple[bytes, int]:
    if version >= FETCH_BY_ID:
        stop = _stretch(view, at, 16)
    elif version >= FETCH_FLEXIBLE:
        size, at = read_uvarint(view, at)
        stop = _stretch(view, at, size - 1)
    else:
        (size,) = _INT16.unpack_from(view, at)
        at += 2
        stop = _stretch(view, at, size)
    return bytes(view[at:stop]), stop


def _read_fetch_partitions(view: memoryview, at: int, version: int, seen: int) -> tuple[list[FetchPartition], int]:
    count, at = _read_array(view, at, version >= FETCH_FLEXIBLE)
    _bounded(seen + count + 1)
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
        seen = _bounded(seen + size + 1)
        forgotten.append((token, list(Struct(f">{size}i").unpack_from(view, at))))
        at += 4 * size
        if flexible:
            at = skip_tags(view, at)
    return forgotten, at


def _read_fetch_tags(view: memoryview, at: int, version: int, replica_id: int) -> tuple[int, int]:
    """Replica id and broker epoch, which are in tag 1 from version 15 on; other tags are skipped."""
    epoch = -1
    count, at = read_uvarint(view, at)
    for _ in range(_count(view, at, count)):
        tag, at = read_uvarint(view, at)
        size, at = read_uvarint(view, at)
        stop = _stretch(view, at, size)
        if tag == 1 and version >= 15:
            replica_id, epoch = _REPLICA.unpack_from(view[:stop], at)
        at = stop
    return replica_id, epoch


_FETCH_RESPONSE_4: Final = Struct(">iii")  # length, correlation id, throttle time
_FETCH_RESPONSE_12: Final = Struct(">iixi")  # with no header tags between
_FETCH_RESULT_4: Final = Struct(">ihqq")
_FETCH_RESULT_5: Final = Struct(">ihqqq")
_NO_PREFERRED: Final = _INT32.pack(-1)
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
        head += _INT16.pack(code) + _INT32.pack(session_id)
    head += _array(len(topics), flexible)
    parts: list[bytes | bytearray | FileSlice] = [head]
    current = head
    length = 0
    for token, results in topics:
        current += _token(token, version >= FETCH_BY_ID, flexible)
        current += _array(len(results), flexible)
        for result in results:
            current += _fetch_row(version, result)
            records = result.records
            if records is None:
                current += (b"\x01" if flexible else b"\0\0\0\0") + _fetch_row_tags(version, result)
                continue
            size = records.length
            current += uvarint(size + 1) if flexible else _INT32.pack(size)
            length += len(current) + size
            current = bytearray(_fetch_row_tags(version, result))
            parts.append(records)
            parts.append(current)
        if flexible:
            current += b"\0"
    if flexible:
        current += _endpoints_tag(endpoints) if endpoints and version >= FETCH_LEADERS else b"\0"
    _INT32.pack_into(head, 0, length + len(current) - 4)
    if not current:
        parts.pop()
    return parts


def _fetch_row(version: int, result: FetchResult) -> bytes:
    aborted, preferred = result.aborted, result.preferred
    fields = (result.partition, result.error, result.high_watermark, result.last_stable)
    row: bytes = _FETCH_RESULT_5.pack(*fields, result.log_start) if version >= 5 else _FETCH_RESULT_4.pack(*fields)
    if version >= FETCH_FLEXIBLE:
        row += b"\x00" if aborted is None else _array(len(aborted), True)
    else:
        row += b"\xff\xff\xff\xff" if aborted is None else _INT32.pack(len(aborted))
    if aborted:
        tags = b"\0" if version >= FETCH_FLEXIBLE else b""
        row += b"".join([_ABORTED.pack(*each) + tags for each in aborted])
    if version < 11:
        return row
    return row + (_NO_PREFERRED if preferred < 0 else _INT32.pack(preferred))


def _fetch_row_tags(version: int, result: FetchResult) -> bytes:
    if version < FETCH_FLEXIBLE:
        return b""
    if result.diverging is None:
        return _leader_tag(1, result.leader) if result.leader is not None and version >= FETCH_LEADERS else b"\0"
    return b"\x01\x00" + bytes((_DIVERGING.size + 1,)) + _DIVERGING.pack(*result.diverging) + b"\0"
