"""What a batch in the log means for its producer, live or read again: its state, and transactions that it aborted."""

from collections.abc import Callable

from moldau.log.aborted import Aborted
from moldau.log.header import RawHeader
from moldau.log.markers import read_marker
from moldau.log.producers import NONE_OPEN, Producers
from moldau.wire.batch import CONTROL, TRANSACTIONAL


def follow(producers: Producers, header: RawHeader, base: int, read: Callable[[], bytes]) -> Aborted | None:
    """Takes note of a producer's batch at offset `base`; `read` gives its bytes, which only a marker needs."""
    attributes = header[5]
    if not attributes & CONTROL:
        transactional = attributes & TRANSACTIONAL != 0
        producers.update(header[9], header[10], header[11], header[6], base, header[8], transactional)
        return None
    marker = read_marker(read())
    if marker is None:
        return None
    producer_id = header[9]
    first_offset = producers.end_transaction(producer_id, header[10], marker.coordinator_epoch, header[8])
    if marker.commit or first_offset < 0:
        return None
    still_open = producers.first_open_offset
    return Aborted(producer_id, first_offset, base, base + 1 if still_open == NONE_OPEN else still_open)
