"""Batches as a follower gets them from its leader: whether they are what the leader wrote, and into which segment.

A follower appends what came as it is: offsets, epochs and timestamps are the leader's. The last batch of an answer may
be cut, as in every answer to a fetch; it comes again.
"""

import errno
import os
from typing import NamedTuple

from crc32c import crc32c

from moldau.log.files import OpenFiles, cut_back
from moldau.log.header import RawHeader
from moldau.log.segment import MAX_RELATIVE_OFFSET, Segment
from moldau.wire.batch import CRC_START, HEADER, HEADER_SIZE, MAGIC, PREFIX_SIZE


class CorruptFetchError(ValueError):
    """What the leader sent is not what it should be: nothing of it is appended."""


class FetchedBatches(NamedTuple):
    headers: list[RawHeader]
    data: memoryview  # the batches of these headers, one behind the other


def parse_fetched(data: memoryview, expected: int) -> FetchedBatches:
    """The whole batches of an answer, from the one that holds the offset `expected` on."""
    headers: list[RawHeader] = []
    begin = at = 0
    end = len(data)
    offset = expected
    while end - at >= HEADER_SIZE:
        header: RawHeader = HEADER.unpack_from(data, at)
        base, length, _, magic, crc, _, delta = header[:7]
        stop = at + length + PREFIX_SIZE
        if length < HEADER_SIZE - PREFIX_SIZE or magic != MAGIC or delta < 0:
            raise CorruptFetchError(f"at byte {at} is no batch of format {MAGIC}")
        if stop > end:
            break
        if crc != crc32c(data[at + CRC_START : stop]):
            raise CorruptFetchError(f"the checksum of the batch at offset {base} is wrong")
        if headers and base < offset:
            raise CorruptFetchError(f"a batch at offset {base} follows one that ends at {offset}")
        if base + delta < expected:
            begin = stop  # it is here already
        else:
            headers.append(header)
            offset = base + delta + 1
        at = stop
    return FetchedBatches(headers, data[begin:at])


def fitting(headers: list[RawHeader], start: int, segment: Segment, most_bytes: int, now: int) -> int:
    """The first of the batches from `start` on that a segment does not take."""
    if segment.live is None or segment.live.full:
        return start
    room = most_bytes - segment.size
    for place in range(start, len(headers)):
        header = headers[place]
        room -= header[1] + PREFIX_SIZE
        late = (header[8] if segment.timed else now) > segment.roll_at
        if room < 0 or late or header[0] + header[6] - segment.base > MAX_RELATIVE_OFFSET:
            return place
    return len(headers)


def write_batches(segment: Segment, files: OpenFiles, headers: list[RawHeader], data: memoryview) -> None:
    """Writes batches behind each other into a segment and its index, or nothing of them."""
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
