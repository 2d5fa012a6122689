"""Batches of a leader's fetch response: checking them, and appending them to a follower's segment.

A follower appends batches unchanged, with the leader's offsets, epochs and timestamps. The last batch of a response
may be incomplete; it is fetched again.
"""

import errno
import os
from typing import NamedTuple

from moldau.base.crc import crc32c
from moldau.log.files import OpenFiles, cut_back
from moldau.log.header import RawHeader
from moldau.log.segment import MAX_RELATIVE_OFFSET, Segment
from moldau.wire.batch import CRC_START, HEADER, HEADER_SIZE, MAGIC, PREFIX_SIZE


class CorruptFetchError(ValueError):
    """The leader's response has a corrupt batch; nothing of it is appended."""


class FetchedBatches(NamedTuple):
    headers: list[RawHeader]
    data: memoryview  # the batches with these headers


def parse_fetched(data: memoryview, expected: int) -> FetchedBatches:
    """The complete batches of a fetch response, from the one with the offset `expected` on."""
    headers: list[RawHeader] = []
    begin = at = 0
    end = len(data)
    offset = expected
    while end - at >= HEADER_SIZE:
        header: RawHeader = HEADER.unpack_from(data, at)
        base, length, _, magic, crc, _, delta = header[:7]
        stop = at + length + PREFIX_SIZE
        if length < HEADER_SIZE - PREFIX_SIZE or magic != MAGIC or delta < 0:
            raise CorruptFetchError(f"no batch of format {MAGIC} at byte {at}")
        if stop > end:
            break
        if crc != crc32c(data[at + CRC_START : stop]):
            raise CorruptFetchError(f"wrong checksum of the batch at offset {base}")
        if headers and base < offset:
            raise CorruptFetchError(f"a batch at offset {base} follows one that ends at {offset}")
        if base + delta < expected:
            begin = stop  # the log has it already
        else:
            headers.append(header)
            offset = base + delta + 1
        at = stop
    return FetchedBatches(headers, data[begin:at])


def fitting(headers: list[RawHeader], start: int, segment: Segment, most_bytes: int, now: int) -> int:
    """The index of the first batch, from `start` on, that does not fit into a segment."""
    if segment.live is None or segment.live.full:
        return start
    room = most_bytes - segment.size
    for index in range(start, len(headers)):
        header = headers[index]
        room -= header[1] + PREFIX_SIZE
        late = (header[8] if segment.timed else now) > segment.roll_at
        if room < 0 or late or header[0] + header[6] - segment.base > MAX_RELATIVE_OFFSET:
            return index
    return len(headers)


def write_batches(segment: Segment, files: OpenFiles, headers: list[RawHeader], data: memoryview) -> None:
    """Append batches to a segment and its index, all or none."""
    assert segment.live is not None
    segment.touched = True
    file = segment.file or files.open(segment)
    position = segment.size
    written = os.write(file.fd, data)
    if written != len(data):
        cut_back(file.fd, position)
        raise OSError(errno.ENOSPC, f"Disk full: {written} of {len(data)} bytes were written", f"{segment.stem}.log")
    segment.size = position + written
    for header in headers:
        first = header[0] - segment.base
        segment.live.add(first, first + header[6], position, header[8])
        position += header[1] + PREFIX_SIZE
