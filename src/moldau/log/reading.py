"""Sequential reads of batches in large chunks, for replay in a thread. Checks lengths only."""

import os
from collections.abc import Iterator

from moldau.log.segment import CorruptLogError, Segment
from moldau.wire.batch import HEADER_SIZE, BatchHeader, read_header

CHUNK = 1024 * 1024  # bytes per read; a larger batch is read at once

StoredBatch = tuple[BatchHeader, memoryview]


def read_batches(segment: Segment, position: int, end: int, chunk_size: int = CHUNK) -> Iterator[StoredBatch]:
    """Header and bytes of each batch between two positions of a segment."""
    file = segment.opened()  # kept: the pool may close its own reference
    missing = 0  # of a batch that does not fit into a chunk
    while position < end:
        chunk = memoryview(os.pread(file.fd, min(max(chunk_size, missing), end - position), position))
        if len(chunk) < max(HEADER_SIZE, missing):
            raise CorruptLogError(f"{segment.stem}: no batch in {len(chunk)} bytes at position {position}")
        at = missing = 0
        while at + HEADER_SIZE <= len(chunk):
            header = read_header(chunk, at)
            size = header.size
            if size < HEADER_SIZE or position + at + size > end:
                raise CorruptLogError(f"{segment.stem}: a batch of {size} bytes at position {position + at} of {end}")
            if at + size > len(chunk):
                missing = size
                break
            yield header, chunk[at : at + size]
            at += size
        position += at
