"""Positions of a consumer: where it is, how far behind, and where it shall go on."""

import datetime
from collections.abc import Iterable, Mapping

from moldau.base.ids import Offset, TopicPartition
from moldau.client.arguments import partitions_of
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.queries import Queries
from moldau.client.consumer.subscriptions import BEGINNING, END, TAIL
from moldau.client.errors import InvalidUse

MILLISECOND = datetime.timedelta(milliseconds=1)
EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class Positions:
    """Reads and sets positions of the partitions that are assigned; no partition means all of them."""

    def __init__(self, engine: ConsumerEngine, queries: Queries) -> None:
        self._engine = engine
        self.queries = queries

    def committed(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self._engine.options.group is None:
            raise InvalidUse("this consumer has no group, so nothing is committed")
        return self.queries.committed(self._chosen(partitions))

    def position(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, Offset]:
        """The offset of the next message that the body gets."""
        known = {tp: self._engine.next_offset(tp) for tp in self._chosen(partitions)}
        committed = self.queries.committed([tp for tp, offset in known.items() if offset is None])
        for tp, kept in committed.items():
            known[tp] = None if kept is None else kept.offset
        at_start = END if self._engine.options.start == "latest" else BEGINNING
        return self.resolve({tp: at_start if offset is None else offset for tp, offset in known.items()})

    def resolve(self, offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, Offset]:
        """Offsets in place of logical ones: the beginning, the end, or so many before it."""
        logical = [tp for tp, offset in offsets.items() if offset < 0]
        beginnings = self.queries.beginnings([tp for tp in logical if offsets[tp] != END])
        ends = self.queries.ends([tp for tp in logical if offsets[tp] != BEGINNING])
        tails = {tp: max(ends[tp] - (TAIL - offsets[tp]), beginnings[tp]) for tp in logical if offsets[tp] <= TAIL}
        return {**offsets, **beginnings, **ends, **tails}

    def lag(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """How many offsets are between the next message and the end of each partition."""
        position = self.position(partitions)
        ends = self.queries.ends(position)
        return {tp: max(ends[tp] - offset, 0) for tp, offset in position.items()}

    def seek(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        if any(offset < 0 for offset in offsets.values()):
            raise InvalidUse("an offset is 0 or more; see seek_to_beginning and seek_to_end")
        self._engine.seek(offsets)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition]) -> None:
        self._engine.seek(dict.fromkeys(self._chosen(partitions), BEGINNING))

    def seek_to_end(self, partitions: Iterable[TopicPartition]) -> None:
        self._engine.seek(dict.fromkeys(self._chosen(partitions), END))

    def seek_to_time(self, when: datetime.datetime | int, partitions: Iterable[TopicPartition]) -> None:
        """To the first record from this time on, or to the end where all are older."""
        found = self.queries.at_time(self._chosen(partitions), milliseconds(when))
        self._engine.seek({tp: END if offset is None else offset for tp, offset in found.items()})

    def _chosen(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        return partitions_of(partitions) or sorted(self._engine.assignment())


def milliseconds(when: datetime.datetime | int) -> int:
    """Since the Unix epoch. A time without a zone is local, as everywhere in Python."""
    if not isinstance(when, int | datetime.datetime):
        raise InvalidUse(f"{when!r} is no time: give a datetime, or milliseconds since 1970")
    return when if isinstance(when, int) else (when.astimezone(datetime.UTC) - EPOCH) // MILLISECOND
