"""Producer ids and epochs of records that are in a log twice. The `checker` judges them.

Brokers detect a duplicate batch by producer id, epoch and sequence. A client that starts a new epoch while the outcome
of a batch is unknown, and then sends the batch again, has it twice in the log on any broker.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from chaos.access import Access
from chaos.history import Event, Polled, Recorder, Send, Stamped
from moldau.base.ids import TopicPartition
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import read_range
from moldau.client.direct.metadata import Cluster
from moldau.wire.batch import BatchHeader, read_header


def stamp(access: Access, recorder: Recorder, client: str) -> None:
    """Record the producers of all records that must be unique, but that this reader found at several offsets."""
    twice = list(_twice(recorder.events, client))
    if not twice:
        return
    with Cluster(access.bootstrap, access.direct) as cluster:
        for place, offset in twice:
            header = _batch_at(cluster, place, offset)
            recorder.tell(Stamped, client, place, offset, header.producer_id, header.producer_epoch)


def _twice(events: Iterable[Event], client: str) -> Iterator[tuple[str, int]]:
    once: set[tuple[str, str]] = set()
    found: dict[tuple[str, str], list[int]] = defaultdict(list)
    for event in events:
        if isinstance(event, Send) and event.once:
            once.add((event.place, event.value))
        elif isinstance(event, Polled) and event.client == client:
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
