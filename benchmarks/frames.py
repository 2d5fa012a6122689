"""Requests as bytes on a socket: load that costs the sender next to nothing. Not a client: it parses what it checks.

The versions are those that current Java and librdkafka clients use, so that the broker walks the same code for them.
"""

import socket
import ssl
import time
import uuid
from collections.abc import Sequence
from struct import Struct
from typing import NamedTuple, TypeVar

from crc32c import crc32c

from moldau.wire.batch import CRC_START, HEADER, HEADER_SIZE, PREFIX_SIZE, TRANSACTIONAL
from moldau.wire.codec import decode, encode
from moldau.wire.compression import Codec, compress
from moldau.wire.declare import layout_of
from moldau.wire.headers import read_response_header

PRODUCE, FETCH, METADATA, API_VERSIONS = 0, 1, 3, 18
PRODUCE_VERSION, FETCH_VERSION, METADATA_VERSION = 13, 16, 12

_HEAD = Struct(">ihhih")  # size, key, version, correlation id, length of the client id
_CLIENT = b"bench"
_NO_TAGS = b"\0"
_PARTITION_ANSWER = Struct(">ihqqqbbb")  # Produce: index, error, base offset, two more offsets, then three empty fields
_REPLICA = Struct(">iqb")  # the tagged field of a follower: its id, no broker epoch, no tags
_READ_SIZE = 1 << 20

Response = TypeVar("Response")

NOT_YET = {3, 6, 100}  # unknown topic, not the leader, unknown topic id: the topic is still being created


class Answer(NamedTuple):
    """One response: its size, and its first bytes after the size (all of them, unless it is large)."""

    size: int
    head: bytes


class RefusedError(Exception):
    """The broker answered a frame of the benchmark with an error, which makes the figure worthless."""

    def __init__(self, message: str, error: int) -> None:
        super().__init__(message)
        self.error = error


class Connection:
    """A blocking connection, with TLS if there is a context, that reads responses in order and discards most of their
    bytes."""

    def __init__(
        self,
        address: tuple[str, int],
        timeout_s: float = 60.0,
        *,
        tls: ssl.SSLContext | None = None,
        read_size: int = _READ_SIZE,
    ) -> None:
        self._socket = socket.create_connection(address, timeout=timeout_s)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if tls is not None:
            self._socket = tls.wrap_socket(self._socket, server_hostname=address[0])
        self._pending = bytearray()
        self._scratch = bytearray(read_size)

    def __enter__(self) -> "Connection":
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    @property
    def cipher(self) -> str:
        """Version and cipher suite of TLS."""
        assert isinstance(self._socket, ssl.SSLSocket)
        return f"{self._socket.version()}, {(self._socket.cipher() or ('none',))[0]}"

    def send(self, frame: bytes) -> None:
        self._socket.sendall(frame)

    def receive(self, keep: int = 1024) -> Answer:
        """The next answer; of a large one only the first `keep` bytes and a little more are kept."""
        while len(self._pending) < 4:
            self._pending += self._read(len(self._scratch))
        size = int.from_bytes(self._pending[:4], "big")
        wanted = min(size, keep)
        while len(self._pending) < 4 + wanted:
            self._pending += self._read(len(self._scratch))
        head = bytes(self._pending[4 : 4 + wanted])
        left = size + 4 - len(self._pending)
        del self._pending[: size + 4]
        while left > 0:
            left -= len(self._read(min(left, len(self._scratch))))
        return Answer(size, head)

    def _read(self, most: int) -> memoryview:
        count = self._socket.recv_into(self._scratch, most)
        if count == 0:
            raise ConnectionError("the broker closed the connection")
        return memoryview(self._scratch)[:count]

    def ask(self, frame: bytes) -> Answer:
        self.send(frame)
        return self.receive()


def frame(key: int, version: int, body: bytes, *, flexible: bool = True) -> bytes:
    tags = _NO_TAGS if flexible else b""
    size = _HEAD.size - 4 + len(_CLIENT) + len(tags) + len(body)
    return _HEAD.pack(size, key, version, 1, len(_CLIENT)) + _CLIENT + tags + body


def call(connection: Connection, request: object, answer: type[Response], version: int) -> Response:
    """One request of any API, and its response."""
    layout = layout_of(type(request))
    asked = frame(layout.key, version, encode(request, version), flexible=layout.is_flexible(version))
    head = connection.ask(asked).head
    return decode(answer, version, head, read_response_header(layout.key, version, head)[1])


def api_versions() -> bytes:
    return frame(API_VERSIONS, 0, b"", flexible=False)


def metadata_of_all_topics() -> bytes:
    return frame(METADATA, METADATA_VERSION, b"\0" + b"\0" + b"\0" + _NO_TAGS)


def answers(address: tuple[str, int]) -> bool:
    """Whether a broker answers ApiVersions without an error at this address now."""
    try:
        with Connection(address, timeout_s=2.0) as connection:
            return connection.ask(api_versions()).head[4:6] == b"\0\0"
    except OSError:
        return False


def batch(
    records: int,
    value_size: int,
    *,
    producer_id: int = -1,
    epoch: int = -1,
    base_sequence: int = -1,
    transactional: bool = False,
) -> bytes:
    """A record batch of equal records with null keys; the values hardly compress."""
    value = bytes(index * 37 % 251 for index in range(value_size))
    body = b"".join(_record(offset, value) for offset in range(records))
    attributes = TRANSACTIONAL if transactional else 0
    return _packed(body, records, attributes, (producer_id, epoch, base_sequence))


def compressed_batch(values: Sequence[bytes], codec: Codec) -> bytes:
    """A compressed record batch with these values and null keys."""
    body = b"".join(_record(offset, value) for offset, value in enumerate(values))
    return _packed(compress(codec, body), len(values), codec, (-1, -1, -1))


def _packed(body: bytes, records: int, attributes: int, producer: tuple[int, int, int]) -> bytes:
    now, size = int(time.time() * 1000), HEADER_SIZE - PREFIX_SIZE + len(body)
    head = HEADER.pack(0, size, -1, 2, 0, attributes, records - 1, now, now, *producer, records)
    return _sealed(bytearray(head + body))


def with_sequence(packed: bytes, base_sequence: int) -> bytes:
    """The same batch as an idempotent producer would send it next."""
    changed = bytearray(packed)
    changed[HEADER_SIZE - 8 : HEADER_SIZE - 4] = base_sequence.to_bytes(4, "big")
    return _sealed(changed)


def _sealed(packed: bytearray) -> bytes:
    packed[CRC_START - 4 : CRC_START] = crc32c(memoryview(packed)[CRC_START:]).to_bytes(4, "big")
    return bytes(packed)


def _record(offset: int, value: bytes) -> bytes:
    inner = b"\0" + b"\0" + _zigzag(offset) + _zigzag(-1) + _zigzag(len(value)) + value + b"\0"
    return _zigzag(len(inner)) + inner


def _zigzag(number: int) -> bytes:
    return unsigned((number << 1) ^ (number >> 63))


def unsigned(number: int) -> bytes:
    packed = bytearray()
    while number > 0x7F:
        packed.append(number & 0x7F | 0x80)
        number >>= 7
    packed.append(number)
    return bytes(packed)


def produce(
    topic: uuid.UUID, batches: Sequence[tuple[int, bytes]], *, acks: int = 1, transactional_id: str | None = None
) -> bytes:
    """One Produce request with one batch for each (partition, batch)."""
    partitions = b"".join(
        index.to_bytes(4, "big") + unsigned(len(data) + 1) + data + _NO_TAGS for index, data in batches
    )
    name = b"\0" if transactional_id is None else unsigned(len(transactional_id) + 1) + transactional_id.encode()
    body = name + acks.to_bytes(2, "big", signed=True) + (30_000).to_bytes(4, "big")
    body += b"\2" + topic.bytes + unsigned(len(batches) + 1) + partitions + _NO_TAGS + _NO_TAGS
    return frame(PRODUCE, PRODUCE_VERSION, body)


def check_produced(answer: Answer, partitions: int) -> None:
    """Raises unless every partition of a one-topic answer was accepted."""
    count = unsigned(partitions + 1)
    position = 4 + 1 + 1 + 16  # correlation id, tags, number of topics, topic id
    if answer.head[position : position + len(count)] != count:
        raise RefusedError(f"unexpected answer to Produce: {answer.head[:64].hex()}", -1)
    position += len(count)
    for _ in range(min(partitions, (len(answer.head) - position) // _PARTITION_ANSWER.size)):
        index, error, *_ = _PARTITION_ANSWER.unpack_from(answer.head, position)
        if error:
            raise RefusedError(f"Produce to partition {index} was refused with error {error}", error)
        position += _PARTITION_ANSWER.size


def fetch(
    topic: uuid.UUID,
    offsets: Sequence[tuple[int, int]],
    *,
    partition_bytes: int,
    wait_ms: int = 500,
    committed: bool = False,
    follower: int | None = None,
) -> bytes:
    """A Fetch outside of any session, as librdkafka sends it, for each (partition, offset); or of this follower."""
    numbers = Struct(">iiqiqi")
    partitions = b"".join(
        numbers.pack(index, -1, offset, -1, -1, partition_bytes) + _NO_TAGS for index, offset in offsets
    )
    body = Struct(">iiibii").pack(wait_ms, 1, 0x7FFFFFFF, int(committed), 0, -1)
    body += b"\2" + topic.bytes + unsigned(len(offsets) + 1) + partitions + _NO_TAGS
    body += b"\1" + b"\1"  # no forgotten topics, no rack
    body += _NO_TAGS if follower is None else b"\1\1" + unsigned(_REPLICA.size) + _REPLICA.pack(follower, -1, 0)
    return frame(FETCH, FETCH_VERSION, body)


class Fetched(NamedTuple):
    """The first partition of a Fetch response, from its first bytes."""

    high_watermark: int
    records_size: int


def check_fetched(answer: Answer) -> Fetched:
    """The first partition of a one-topic answer; raises if it carries an error."""
    head = answer.head
    error = int.from_bytes(head[9:11], "big", signed=True)  # after correlation id, tags and throttle time
    if error or head[15] < 2:
        raise RefusedError(f"Fetch was refused with error {error}: {head[:64].hex()}", error)
    position = 16 + 16  # the topic id
    while head[position] & 0x80:
        position += 1
    position += 1
    _, error, high_watermark, _, _ = Struct(">ihqqq").unpack_from(head, position)
    if error:
        raise RefusedError(f"Fetch of a partition was refused with error {error}", error)
    position += 30 + 1 + 4  # aborted transactions, preferred replica
    size = shift = 0
    while True:
        byte = head[position]
        size |= (byte & 0x7F) << shift
        position, shift = position + 1, shift + 7
        if not byte & 0x80:
            return Fetched(high_watermark, max(size - 1, 0))
