"""Batches and logs for tests of the partition log: a small builder, and a reader that uses no index."""

import os
from pathlib import Path
from struct import pack
from typing import Any
from uuid import UUID

from crc32c import crc32c

from moldau.base.slices import FileSlice
from moldau.log.files import OpenFiles
from moldau.log.log import Log
from moldau.log.settings import LogConfig
from moldau.wire.batch import BatchHeader, read_header

TOPIC_ID = UUID("5f0e8d2c-7f3a-4a59-9b0e-3a2f7c1d9e44")
NOW = 1_800_000_000_000


def varint(value: int) -> bytes:
    value = value << 1 ^ value >> 63
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def record(offset_delta: int, value: bytes, timestamp_delta: int = 0, key: bytes | None = None) -> bytes:
    key_field = varint(-1) if key is None else varint(len(key)) + key
    body = b"\0" + varint(timestamp_delta) + varint(offset_delta) + key_field + varint(len(value)) + value + b"\0"
    return varint(len(body)) + body


def batch(
    count: int = 1,
    *,
    timestamp: int = NOW,
    max_timestamp: int | None = None,
    value: bytes = b"value",
    producer_id: int = -1,
    epoch: int = -1,
    sequence: int = -1,
    attributes: int = 0,
    base_offset: int = 0,
    leader_epoch: int = -1,
    body: bytes | None = None,
    **odd: Any,
) -> memoryview:
    """A batch of `count` equal records; `odd` overrides length, magic, crc, last_offset_delta or record_count."""
    records = b"".join(record(delta, value) for delta in range(count)) if body is None else body
    covered = pack(
        ">hiqqqhii",
        attributes,
        odd.get("last_offset_delta", count - 1),
        timestamp,
        timestamp if max_timestamp is None else max_timestamp,
        producer_id,
        epoch,
        sequence,
        odd.get("record_count", count),
    )
    covered += records
    head = pack(
        ">qiibI",
        base_offset,
        odd.get("length", len(covered) + 9),
        leader_epoch,
        odd.get("magic", 2),
        odd.get("crc", crc32c(covered)),
    )
    return memoryview(head + covered)


def open_log(directory: Path, config: LogConfig | None = None, *, clean: bool = False, **options: Any) -> Log:
    options = {"now": NOW, "topic_id": TOPIC_ID, "files": OpenFiles(), **options}
    return Log.open(directory / "topic-0", "topic-0", config or LogConfig(), clean=clean, **options)


def append(log: Log, data: memoryview, leader_epoch: int = 0, now: int = NOW) -> int:
    return log.append(read_header(data), data, leader_epoch, now)


def flush(log: Log) -> None:
    job = log.begin_flush()
    job.run()
    log.finish_flush(job)


def read(piece: FileSlice | None) -> bytes:
    return b"" if piece is None else os.pread(piece.file.fd, piece.length, piece.position)


def whole_batches(data: bytes) -> list[BatchHeader]:
    """Headers of the batches in `data`; a truncated one at the end is ignored."""
    headers = []
    position = 0
    while position + 61 <= len(data):
        header = read_header(data, position)
        position += header.size
        if position <= len(data):
            headers.append(header)
    return headers


def segment_files(directory: Path) -> list[Path]:
    return sorted((directory / "topic-0").glob("*.log"))


def headers_on_disk(directory: Path) -> list[BatchHeader]:
    """Every batch in the `.log` files, found without an index."""
    return [header for path in segment_files(directory) for header in whole_batches(path.read_bytes())]


def producer_view(log: Log) -> dict[int, tuple[Any, ...]]:
    """The part of the producers' state that clients can observe."""
    return {
        state.producer_id: (state.epoch, state.last_sequence, state.last_timestamp, tuple(state.batches))
        for state in log.producers
    }
