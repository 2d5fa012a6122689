"""Histories of a compacted log: writes of all kinds, what was written in memory, and what readers must see of it."""

from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

from moldau.log.compaction.choice import measure, plan
from moldau.log.compaction.rewriting import clean
from moldau.log.compaction.swapping import Swaps
from moldau.log.compaction.work import Cleaned, Tally, Work
from moldau.log.files import remove
from moldau.log.log import Log
from moldau.log.markers import Marker, encode_marker, read_marker
from moldau.log.settings import LogConfig
from moldau.wire.batch import CONTROL, TRANSACTIONAL, BatchHeader, read_header
from moldau.wire.records import Record, check_batch, decode_records, encode_batch
from support.log.logs import NOW, flush, open_log

COMPACTED = LogConfig(
    cleanup_policy=frozenset({"compact"}),
    segment_bytes=700,
    index_interval_bytes=150,
    delete_retention_ms=1000,
    min_cleanable_dirty_ratio=0.0,
)
MANY_KEYS = 1 << 20
Key = bytes | None


class Wrote(NamedTuple):
    record: Record
    transaction: int | None  # number of it


class History:
    """A log on disk and, beside it, everything that was ever written to it."""

    def __init__(self, directory: Path, config: LogConfig = COMPACTED) -> None:
        self.directory = directory
        self.config = config
        self.now = NOW
        self.log = open_log(directory, config)
        self.wrote: list[Wrote] = []
        self.outcomes: dict[int, bool] = {}  # transaction → committed
        self._open: dict[int, int] = {}  # producer → transaction
        self._begun = 0
        self._horizons: dict[int, int] = {}  # tombstones that were cleaned → when they may go
        self.mortal: set[int] = set()  # tombstones that a cleaning was allowed to take

    # -- writing -----------------------------------------------------------------------------------------------------

    def write(
        self,
        pairs: list[tuple[Key, Key]],
        *,
        producer: int | None = None,
        transactional: bool = False,
        codec: int = 0,
        leader_epoch: int = 0,
    ) -> None:
        """Keys and values as one batch."""
        base = self.log.end_offset
        records = [
            Record(place, self.now + place % 3, key, value, (("h", b"x"),) if place % 2 else ())
            for place, (key, value) in enumerate(pairs)
        ]
        state = self.log.producers.get(producer) if producer is not None else None
        data = encode_batch(
            records,
            codec=codec,
            attributes=TRANSACTIONAL if transactional else 0,
            producer_id=-1 if producer is None else producer,
            producer_epoch=-1 if producer is None else state.epoch if state else 0,
            base_sequence=-1 if producer is None else state.last_sequence + 1 if state else 0,
        )
        self.log.append(read_header(data), data, leader_epoch, self.now)
        transaction = None
        if transactional:
            assert producer is not None
            if producer not in self._open:
                self._begun += 1
                self._open[producer] = self._begun
            transaction = self._open[producer]
        self.wrote += [Wrote(record._replace(offset=base + record.offset), transaction) for record in records]

    def end(self, producer: int, *, commit: bool, bump: int = 0) -> None:
        """A marker, be there an open transaction or not."""
        state = self.log.producers.get(producer)
        epoch = (state.epoch if state else 0) + bump
        data = encode_marker(producer, epoch, Marker(commit, 0), self.now)
        self.log.append(read_header(data), data, 0, self.now)
        transaction = self._open.pop(producer, None)
        if transaction is not None:
            self.outcomes[transaction] = commit

    def is_open(self, producer: int) -> bool:
        return producer in self._open

    def reopen(self, *, clean_stop: bool, recovery_point: int = 0) -> None:
        first_dirty_offset = self.log.first_dirty_offset
        self.log.close(clean=clean_stop)
        point = recovery_point % (self.log.recovery_point + 1)
        self.log = open_log(self.directory, self.config, clean=clean_stop, recovery_point=point, now=self.now)
        self.log.first_dirty_offset = first_dirty_offset

    # -- cleaning ----------------------------------------------------------------------------------------------------

    def work(self, key_memory: int = MANY_KEYS) -> Work:
        self.log.roll(self.now)
        flush(self.log)
        dirt = measure(self.log, self.log.last_stable_offset(self.log.end_offset), self.now)
        return plan(self.log, dirt, self.now, key_memory, chunk=0)

    def clean(self, key_memory: int = MANY_KEYS) -> Tally | None:
        """As the broker does it, with nobody in between."""
        work = self.work(key_memory)
        if work.first_dirty >= work.upper:
            return None
        swaps = Swaps(self.log, work)
        reached = 0
        for told in clean(Work.from_json(work.to_json()), lambda _: None):
            if isinstance(told, Cleaned):
                swaps.commit(told)
                assert swaps.possible(told)
                removed = swaps.carry_out(told, self.now)
                swaps.settle()
                remove(removed)
                reached = told.bases[-1]
        assert isinstance(told, Tally)
        self.log.first_dirty_offset = told.end
        self._note_tombstones(min(base for base in (*self.log.segments.bases, work.upper) if base > reached))
        return told

    def _note_tombstones(self, upper: int) -> None:
        """Those before `upper` were cleaned now, for the first time or once more."""
        horizon = self.now + self.config.delete_retention_ms
        for record, _ in self.wrote:
            old = record.value is None and record.offset < upper
            if old and self._horizons.setdefault(record.offset, horizon) <= self.now:
                self.mortal.add(record.offset)

    # -- what a reader sees ------------------------------------------------------------------------------------------

    def batches(self, from_offset: int = 0) -> list[tuple[BatchHeader, bytes]]:
        return [(check_batch(batch), bytes(batch)) for _, batch in self.log.read_batches(from_offset)]

    def records(self, from_offset: int = 0) -> list[Record]:
        """All records, as a reader of everything sees them."""
        return [
            record
            for header, batch in self.batches(from_offset)
            if not header.attributes & CONTROL
            for record in decode_records(batch, limit=1 << 20)
            if record.offset >= from_offset
        ]

    def committed(self, from_offset: int = 0) -> list[Record]:
        """As a consumer with read_committed sees them: with the list of aborted transactions and the markers."""
        stable = self.log.last_stable_offset(self.log.end_offset)
        coming = sorted(self.log.aborted_transactions(from_offset, stable), key=lambda each: each.first_offset)
        aborting: set[int] = set()
        seen = []
        for header, batch in self.batches(from_offset):
            if header.base_offset >= stable:
                break
            while coming and coming[0].first_offset <= header.last_offset:
                aborting.add(coming.pop(0).producer_id)
            if header.attributes & CONTROL:
                marker = read_marker(batch)
                if marker is not None and not marker.commit:
                    aborting.discard(header.producer_id)
            elif not (header.attributes & TRANSACTIONAL and header.producer_id in aborting):
                seen += [each for each in decode_records(batch, limit=1 << 20) if each.offset >= from_offset]
        return seen

    def decided(self) -> list[Record]:
        """What was written, without what was aborted or is not decided."""
        stable = self.log.last_stable_offset(self.log.end_offset)
        return [
            wrote.record
            for wrote in self.wrote
            if wrote.record.offset < stable
            and (wrote.transaction is None or self.outcomes.get(wrote.transaction, False))
        ]


def check(history: History) -> None:
    """Whatever was cleaned, readers lose nothing that compaction promises to keep."""
    original = {wrote.record.offset: wrote.record for wrote in history.wrote}
    everything = history.records()
    offsets = [record.offset for record in everything]
    assert offsets == sorted(set(offsets))
    assert all(original[record.offset] == record for record in everything)
    committed, decided = history.committed(), history.decided()
    promised = set(decided)
    assert all(record in promised for record in committed)
    last_now, last_then = _last(committed), _last(decided)
    for key, record in last_then.items():
        if record.offset not in history.mortal or key in last_now:
            assert last_now[key] == record, key
    assert last_now.keys() <= last_then.keys()
    for from_offset in range(0, history.log.end_offset, 3):
        assert history.records(from_offset) == [record for record in everything if record.offset >= from_offset]
        assert history.committed(from_offset) == [record for record in committed if record.offset >= from_offset]
    _check_places(history.log)


def _last(records: list[Record]) -> dict[Key, Record]:
    return {record.key: record for record in records}


def _check_places(log: Log) -> None:
    """The indexes agree with a scan, and the sizes add up."""
    headers = list(log.read_headers(0))
    assert log.size == sum(header.size for header in headers)
    for header in headers:
        piece = log.locate(header.base_offset, 1, log.end_offset, whole_first=True)
        assert piece is not None
        assert piece.length == header.size
        at_time = log.segments.batch_at_time(header.max_timestamp, log.start_offset)
        assert at_time is not None
        assert read_header(at_time).max_timestamp >= header.max_timestamp
    expected = 0
    for header in headers:
        assert expected <= header.base_offset <= header.last_offset < log.end_offset
        expected = header.last_offset + 1


def check_clean(history: History) -> None:
    """After a cleaning that had room for all keys: no key twice before `first_dirty_offset`, and no aborted data."""
    seen: dict[Key, list[int]] = defaultdict(list)
    for record in history.records():
        if record.offset < history.log.first_dirty_offset:
            seen[record.key].append(record.offset)
    assert all(len(offsets) == 1 for offsets in seen.values()), seen
    transactions = {wrote.record.offset: wrote.transaction for wrote in history.wrote}
    for offsets in seen.values():
        transaction = transactions[offsets[0]]
        assert transaction is None or history.outcomes.get(transaction, True)
