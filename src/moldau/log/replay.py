"""Replay of batches into producer state and aborted transactions: on append, and after a restart."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import takewhile

from moldau.base.ids import Position
from moldau.log.aborted import Aborted
from moldau.log.header import RawHeader
from moldau.log.markers import read_marker
from moldau.log.producers import NONE_OPEN, BatchMetadata, Producer, Producers, last_sequence
from moldau.log.segment import Segment
from moldau.wire.batch import CONTROL, PREFIX_SIZE, TRANSACTIONAL

LocatedBatch = tuple[Segment, Position, RawHeader]


def update_producers(producers: Producers, header: RawHeader, base: int, read: Callable[[], bytes]) -> Aborted | None:
    """Update the producer state with a batch at offset `base`; `read` gives its bytes, needed for markers only."""
    attributes = header[5]
    if not attributes & CONTROL:
        transactional = attributes & TRANSACTIONAL != 0
        producers.update(header[9], header[10], header[11], header[6], base, header[8], transactional)
        return None
    producer_id = header[9]
    if not header[12]:  # emptied by compaction; the header is kept for the epoch
        producers.end_transaction(producer_id, header[10], producers.coordinator_epoch_of(producer_id), header[8])
        return None
    marker = read_marker(read())
    if marker is None:
        return None
    first_offset = producers.end_transaction(producer_id, header[10], marker.coordinator_epoch, header[8])
    if marker.commit or first_offset < 0:
        return None
    still_open = producers.first_open_offset
    return Aborted(producer_id, first_offset, base, base + 1 if still_open == NONE_OPEN else still_open)


def replay(
    producers: Producers, batches: Iterable[LocatedBatch], from_offset: int
) -> Iterator[tuple[Segment, Aborted]]:
    """Update `producers` with `batches`, from `from_offset` on; yields the aborted transactions."""
    for segment, position, header in batches:
        if header[9] >= 0 and header[0] + header[6] >= from_offset:  # a log may start within a batch
            aborted = update_producers(
                producers, header, header[0], partial(segment.read_bytes, position, header[1] + PREFIX_SIZE)
            )
            if aborted is not None:
                yield segment, aborted


def aborted_of(
    segment: Segment, producers: Producers, batches: Iterable[LocatedBatch], from_offset: int
) -> list[Aborted]:
    """The aborted transactions with markers in `segment`; `batches` begin at `from_offset`, before it."""
    located = takewhile(lambda each: each[0].base <= segment.base, batches)
    return [aborted for each, aborted in replay(producers, located, from_offset) if each is segment]


def written_before(state: Producer, batches: Iterable[LocatedBatch], end: int) -> list[BatchMetadata]:
    """The batches of a producer's epoch before the offset `end`."""
    found = []
    for _, _, header in batches:
        base, delta, sequence = header[0], header[6], header[11]
        if base >= end:
            break
        if header[9] == state.producer_id and header[10] == state.epoch and not header[5] & CONTROL:
            found.append(BatchMetadata(sequence, last_sequence(sequence, delta), base, base + delta, header[8]))
    return found
