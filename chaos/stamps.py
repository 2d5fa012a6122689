"""By which producer, and in which of its epochs, a record was written that is in a log twice. Judges nothing.

Brokers know a batch again by its producer's id, epoch and sequence. A client that begins a new epoch while it does not
know what became of a batch, and then sends that again, has two in the log, on any broker.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from chaos.history import Event, Polled, Recorder, Send, Stamped
from moldau.base.ids import TopicPartition
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import read_range
from moldau.client.direct.metadata import Cluster
from moldau.wire.batch import BatchHeader, read_header


def stamp(bootstrap: str, recorder: Recorder, who: str) -> None:
    """Tells it of all records that must be there once, and that the reader `who` found at several offsets."""
    twice = list(_twice(recorder.events, who))
    if not twice:
        return
    with Cluster(bootstrap) as cluster:
        for place, offset in twice:
            header = _batch_at(cluster, place, offset)
            recorder.tell(Stamped, who, place, offset, header.producer_id, header.producer_epoch)


def _twice(events: Iterable[Event], who: str) -> Iterator[tuple[str, int]]:
    once: set[tuple[str, str]] = set()
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in events:
        if isinstance(event, Send) and event.once:
            once.add((event.place, event.value))
        elif isinstance(event, Polled) and event.who == who:
            for offset, value in event.reads:
                found[event.place, value].append(offset)
    for (place, value), offsets in found.items():
        if len(offsets) > 1 and (place, value) in once:
            yield from ((place, offset) for offset in offsets)


def _batch_at(cluster: Cluster, place: str, offset: int) -> BatchHeader:
    topic, _, partition = place.rpartition("/")
    for chunk in read_range(cluster, TopicPartition(topic, int(partition)), offset, offset + 1):
        if isinstance(chunk, Failure):
            raise RuntimeError(f"{place} cannot be read at {offset}: {chunk}")
        for header in map(read_header, chunk.batches):
            if header.base_offset <= offset <= header.last_offset:
                return header
    raise RuntimeError(f"{place} has nothing at {offset}")
