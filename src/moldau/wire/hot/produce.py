"""Produce, decoded and encoded by hand. `wire.messages.produce` declares the same message, and tests compare the two.

Records are never copied out of a request: they are positions `start` and `stop` in the frame.
"""

from collections.abc import Sequence
from struct import Struct
from typing import Final

from moldau.wire.hot.fields import (
    INT16,
    INT32,
    NodeEndpoint,
    array,
    bounded,
    checked_count,
    endpoints_tag,
    leader_tag,
    nullable,
    pack_token,
    skip_tags,
    stretch,
)
from moldau.wire.primitives import SHORT_READ, MalformedMessage, continue_uvarint, read_uvarint, uvarint

PRODUCE_FLEXIBLE: Final = 9
PRODUCE_BY_ID: Final = 13
PRODUCE_LEADERS: Final = 10  # an error names the current leader (KIP-951)

_ACKS_TIMEOUT: Final = Struct(">hi")
_LENGTH_CORRELATION: Final = Struct(">ii")
_NOT_THROTTLED: Final = INT32.pack(0)
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
        stop = stretch(view, at, size - 1)
        transactional_id = bytes(view[at:stop])
        at = stop
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, at)
    topic_count, at = read_uvarint(view, at + 6)
    topics: list[tuple[bytes, list[ProducePartition]]] = []
    seen = 0
    end = len(view)
    for _ in range(checked_count(view, at, topic_count - 1)):
        if version >= PRODUCE_BY_ID:
            stop = at + 16
        else:
            size, at = read_uvarint(view, at)
            stop = stretch(view, at, size - 1)
        token = bytes(view[at:stop])
        count, at = read_uvarint(view, stop)
        partitions: list[ProducePartition] = []
        seen = bounded(seen + count)
        for _ in range(checked_count(view, at, count - 1)):
            (index,) = INT32.unpack_from(view, at)
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
    (size,) = INT16.unpack_from(view, at)
    at += 2
    transactional_id = None
    if size != -1:
        stop = stretch(view, at, size)
        transactional_id = bytes(view[at:stop])
        at = stop
    acks, timeout_ms = _ACKS_TIMEOUT.unpack_from(view, at)
    (topic_count,) = INT32.unpack_from(view, at + 6)
    at += 10
    topics: list[tuple[bytes, list[ProducePartition]]] = []
    seen = 0
    for _ in range(checked_count(view, at, topic_count)):
        (size,) = INT16.unpack_from(view, at)
        at += 2
        stop = stretch(view, at, size)
        token = bytes(view[at:stop])
        (count,) = INT32.unpack_from(view, stop)
        at = stop + 4
        partitions: list[ProducePartition] = []
        seen = bounded(seen + count + 1)
        for _ in range(checked_count(view, at, count)):
            (index,) = INT32.unpack_from(view, at)
            (size,) = INT32.unpack_from(view, at + 4)
            at += 8
            if size == -1:
                partitions.append(ProducePartition(index, at, -1))
                continue
            stop = stretch(view, at, size)
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
_ONE_APPENDED_LENGTH: Final = _ONE_APPENDED.size - INT32.size


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
    body = [b"\0" if flexible else b"", array(len(topics), flexible)]
    for token, results in topics:
        body.append(pack_token(token, version >= PRODUCE_BY_ID, flexible))
        body.append(array(len(results), flexible))
        for each in results:
            fields = (each.partition, each.error, each.base_offset, each.append_time)
            body.append(row.pack(*fields, each.log_start) if with_start else row.pack(*fields))
            if each.message is None and not each.record_errors and each.leader is None:
                body.append(tail)
            elif version >= 8:
                tags = leader_tag(0, each.leader) if each.leader is not None and version >= PRODUCE_LEADERS else b"\0"
                body.append(_pack_produce_errors(each.message, each.record_errors, flexible, tags))
        if flexible:
            body.append(b"\0")
    body.append(INT32.pack(throttle_ms) if throttle_ms else _NOT_THROTTLED)
    if flexible:
        body.append(endpoints_tag(endpoints) if endpoints and version >= PRODUCE_LEADERS else b"\0")
    rest = b"".join(body)
    return _LENGTH_CORRELATION.pack(len(rest) + 4, correlation) + rest


def _pack_produce_errors(
    message: str | None, record_errors: Sequence[tuple[int, str | None]], flexible: bool, row_tags: bytes
) -> bytes:
    out = [array(len(record_errors), flexible)]
    for batch_index, text in record_errors:
        out += (INT32.pack(batch_index), nullable(text, flexible), b"\0" if flexible else b"")
    out += (nullable(message, flexible), row_tags if flexible else b"")
    return b"".join(out)
