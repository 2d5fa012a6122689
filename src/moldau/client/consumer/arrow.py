"""Messages as Arrow RecordBatches: `client/direct` fetches and decodes, librdkafka keeps the membership.

While this reads, the partitions are paused in librdkafka. Progress, commits and rebalances are the engine's.
Needs the extra `arrow`.
"""

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from moldau.base.errors import WireError
from moldau.base.ids import Offset, TopicPartition
from moldau.client.admin.errors import AdminError
from moldau.client.admin.security import read_security
from moldau.client.consumer.commits import OffsetAndMetadata
from moldau.client.consumer.engine import ConsumerEngine
from moldau.client.consumer.positions import Positions
from moldau.client.consumer.progress import OffsetRange
from moldau.client.consumer.subscriptions import BEGINNING, END
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import read_range
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import LATEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from moldau.client.errors import InvalidUse, KafkaFailure
from moldau.client.settings import BOOTSTRAP_PROPERTY
from moldau.wire.compression import CorruptRecords

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger(__name__)

IDLE_S = (0.02, 0.5)  # between two looks for new records: at first, and at last
INSTALL = "pip install 'moldau[arrow]'"


class ArrowReader:
    """Reads the partitions of a consumer in turn."""

    def __init__(self, engine: ConsumerEngine, positions: Positions, *, headers: bool) -> None:
        if engine.options.where is not None:
            raise InvalidUse("arrow reads all messages: filter the batches, or leave out where")
        try:
            from moldau.client.direct import arrow as decoder
        except ModuleNotFoundError as missing:
            raise InvalidUse(f"arrow needs {missing.name}: {INSTALL}") from missing
        self._decoder = decoder
        self._engine = engine
        self._positions = positions
        self._headers = headers
        configuration = engine.options.configuration
        uncommitted = configuration.get("isolation.level") == "read_uncommitted"
        self._isolation = READ_UNCOMMITTED if uncommitted else READ_COMMITTED
        self._cluster = open_cluster(configuration)
        self._sources: dict[TopicPartition, _Source] = {}
        self._failing: set[TopicPartition] = set()  # whose ends are not known

    def batches(self, most: int, wait: float) -> Iterator["pa.RecordBatch"]:
        """RecordBatches of up to `most` rows, until `wakeup`; each is done when the next one is asked for."""
        engine = self._engine
        engine.finish()
        engine.withhold()
        try:
            while (found := self._gather(most, wait)) is not None:
                ranges, batch = found
                if engine.blocks:
                    engine.commit({each.topic_partition: OffsetAndMetadata(each.end) for each in ranges})
                engine.hold(ranges)
                yield batch
                engine.finish()
        finally:
            engine.leave()
            engine.release({tp: source.position for tp, source in self._sources.items()})
            self._cluster.close()

    def _gather(self, most: int, wait: float) -> "tuple[list[OffsetRange], pa.RecordBatch] | None":
        """Rows of all partitions; None after `wakeup`."""
        ranges: list[OffsetRange] = []
        parts: list[pa.RecordBatch] = []
        left = most
        until = float("inf")
        idle_s = IDLE_S[0]
        while left and time.monotonic() < until:
            self._follow()
            before = left
            for tp, source in list(self._sources.items()):
                if left and tp not in self._engine.paused() and (part := source.next_rows(left)) is not None:
                    handed = self._engine.hand_out_range(tp, *_bounds(part))
                    if handed is None:  # revoked, or sought elsewhere, meanwhile
                        del self._sources[tp]
                        continue
                    ranges.append(handed)
                    parts.append(part)
                    left -= part.num_rows
            if left < before:
                until = min(until, time.monotonic() + wait)
                continue
            if not self._engine.pause_for(min(idle_s, max(until - time.monotonic(), 0))):
                break
            idle_s = min(idle_s * 2, IDLE_S[1])
        return (ranges, self._decoder.concatenate(parts)) if parts else None

    def _follow(self) -> None:
        """Take over what was assigned, revoked or sought, and find the ends of partitions that are read up to now."""
        assigned = self._engine.assignment()
        for tp in self._sources.keys() - assigned:
            del self._sources[tp]
        sought = self._engine.take_seeks()
        for tp in sought:
            self._sources.pop(tp, None)
        fresh = assigned - self._sources.keys()
        starts = self._positions.position(fresh - sought.keys()) if fresh - sought.keys() else {}
        for tp, start in (starts | self._positions.resolve(sought)).items():
            if tp in fresh:
                self._sources[tp] = _Source(self, tp, start)
        finished = {tp: LATEST for tp, source in self._sources.items() if source.finished}
        for tp, end in list_offsets(self._cluster, finished, isolation=self._isolation).items():
            if not isinstance(end, Failure):
                self._sources[tp].end = end.offset
                self._failing.discard(tp)
            elif tp not in self._failing:
                self._failing.add(tp)
                logger.warning("Cannot find the end of %s: %s; will try again", tp, end)

    def chunks(self, tp: TopicPartition, start: Offset, end: Offset) -> "Iterator[pa.RecordBatch]":
        """The records from `start` to `end`."""
        for answer in read_range(self._cluster, tp, start, end, isolation=self._isolation):
            if isinstance(answer, Failure):
                raise failed(answer)
            try:
                yield from self._decoder.record_batches(answer.batches, tp, start=start, end=end, headers=self._headers)
            except CorruptRecords as broken:
                raise KafkaFailure(WireError.CORRUPT_MESSAGE.name, f"{tp} cannot be read: {broken}") from broken

    def after_gap(self, tp: TopicPartition, position: Offset, failure: KafkaFailure) -> Offset:
        """Where to go on if the records were deleted: by the consumer's `start`."""
        start = self._engine.options.start
        if failure.name != WireError.OFFSET_OUT_OF_RANGE.name or start == "error":
            raise failure
        found = self._positions.resolve({tp: END if start == "latest" else BEGINNING})[tp]
        logger.warning("Offset %d of %s does not exist any more; goes on at %d", position, tp, found)
        return found


class _Source:
    """One partition: rows from `position` on, up to the end that was seen last."""

    def __init__(self, reader: ArrowReader, tp: TopicPartition, position: Offset) -> None:
        self._reader = reader
        self._tp = tp
        self.position = position
        self.end = position
        self._until = position  # what `_chunks` reads up to
        self._chunks: Iterator[pa.RecordBatch] = iter(())
        self._rest: pa.RecordBatch | None = None

    @property
    def finished(self) -> bool:
        """Whether everything up to the end is read."""
        return self._rest is None and self.position >= self.end

    def next_rows(self, most: int) -> "pa.RecordBatch | None":
        while self._rest is None:
            try:
                self._rest = next(self._chunks, None)
            except KafkaFailure as failure:
                self.position = self._until = self._reader.after_gap(self._tp, self.position, failure)
                self.end = max(self.end, self.position)
                self._chunks = iter(())
            if self._rest is None:
                self.position = max(self.position, self._until)  # there may be no records at its end
                if self.position >= self.end:
                    return None
                self._until = self.end
                self._chunks = self._reader.chunks(self._tp, self.position, self.end)
        rows, rest = self._rest.slice(0, most), self._rest.slice(most)
        self._rest = rest if rest.num_rows else None
        self.position = _bounds(rows)[1]
        return rows


def open_cluster(configuration: Mapping[str, object]) -> Cluster:
    """A direct client for the same cluster."""
    texts = {name: str(value) for name, value in configuration.items() if not callable(value)}
    try:
        security = read_security(texts)
        return Cluster(
            [part.rpartition("://")[2] for part in texts[BOOTSTRAP_PROPERTY].split(",")],
            security,
            client_id=texts.get("client.id", "moldau"),
            rack=texts.get("client.rack", ""),
        )
    except (AdminError, ValueError) as error:
        raise InvalidUse(f"arrow cannot connect: {error}") from error


def failed(failure: Failure) -> KafkaFailure:
    return KafkaFailure(failure.name, failure.message, retriable=failure.retriable)


def _bounds(rows: Any) -> tuple[Offset, Offset]:
    """The first offset, and the one after the last."""
    offsets = rows.column("offset")
    return offsets[0].as_py(), offsets[-1].as_py() + 1
