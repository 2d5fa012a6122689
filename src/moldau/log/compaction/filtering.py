"""Filter: the part of a batch that compaction retains: all, some records, the header, or nothing. Reads no files.

Offsets, sequences, timestamps and leader epoch do not change. A batch that loses no record is copied unchanged.
"""

from array import array
from bisect import bisect_left
from collections.abc import Sequence

from moldau.log.compaction.keys import KeyMap
from moldau.log.compaction.records import RecordSpan, body_of, moved_in_time, pick_spans, read_keys, read_spans
from moldau.log.compaction.transactions import Transactions
from moldau.log.compaction.work import Work
from moldau.wire.batch import (
    CODEC_MASK,
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    PREFIX_SIZE,
    BatchHeader,
)
from moldau.wire.compression import compress
from moldau.wire.records import seal

NO_TIMESTAMP = -1


class Filter:
    """`leave` gets every batch of the log, in order."""

    def __init__(self, work: Work, keys: KeyMap, transactions: Transactions) -> None:
        self._work = work
        self._keys = keys
        self._mapped = keys.offsets.keys()
        self._kept_offsets = array("q", sorted(keys.offsets.values()))  # offsets that stay in the mapped part
        self._transactions = transactions
        self.records_kept = 0

    def leave(self, header: BatchHeader, batch: memoryview) -> tuple[BatchHeader, bytes | memoryview] | None:
        """The retained part of a batch, whose checksum is valid."""
        control = header.attributes & CONTROL != 0
        horizon = header.base_timestamp if header.attributes & DELETE_HORIZON else None
        if control:
            useless = self._transactions.is_useless(header, batch)
            gone = useless and horizon is not None and horizon <= self._work.now
        else:
            useless = False
            gone = self._transactions.is_aborted(header)
        kept: Sequence[RecordSpan] | None = ()
        body = b""
        if not gone and header.record_count:
            body, kept = self._kept_of_marker(header, batch) if control else self._kept(header, batch, horizon)
        if kept is None:
            self.records_kept += header.record_count
            return header, batch
        if not kept:
            return _emptied(header) if self._must_stay(header, control) else None
        self.records_kept += len(kept)
        mortal = useless or any(span.tombstone for span in kept)
        if horizon is None and mortal:
            return self._with_horizon(header, body, kept)
        if len(kept) == header.record_count:
            return header, batch
        return _sealed(header, b"".join([body[span.start : span.end] for span in kept]), kept)

    def _kept_of_marker(self, header: BatchHeader, batch: memoryview) -> tuple[bytes, Sequence[RecordSpan]]:
        body = body_of(header, batch)
        return body, read_spans(body, header.record_count)

    def _kept(
        self, header: BatchHeader, batch: memoryview, horizon: int | None
    ) -> tuple[bytes, Sequence[RecordSpan] | None]:
        """The body and the retained records of a data batch. None instead of records: the batch stays unchanged."""
        base, end = header.base_offset, header.last_offset + 1
        if horizon is None and header.dense and self._work.first_dirty <= base and end <= self._keys.end:
            return self._kept_of_mapped(header, batch)
        body = body_of(header, batch)
        expired = horizon is not None and horizon <= self._work.now  # and with it the tombstones (KIP-534)
        if not expired:
            keys, tombstones = read_keys(body, header.record_count)
            settled = horizon is not None or not tombstones
            if settled and None not in keys and self._mapped.isdisjoint(keys):
                return body, None
        return body, self._chosen(base, read_spans(body, header.record_count), expired)

    def _kept_of_mapped(self, header: BatchHeader, batch: memoryview) -> tuple[bytes, Sequence[RecordSpan] | None]:
        """As `_kept`, in the mapped part: the key map has the offsets that stay, so few records are read."""
        base, offsets = header.base_offset, self._kept_offsets
        first = bisect_left(offsets, base)
        last = bisect_left(offsets, base + header.record_count, first)
        if first == last:
            return b"", ()
        tombstones = self._keys.has_tombstones(base)
        if last - first == header.record_count and not tombstones:
            return b"", None
        body = body_of(header, batch)
        return body, pick_spans(body, [offset - base for offset in offsets[first:last]], tombstones=tombstones)

    def _chosen(self, base: int, spans: list[RecordSpan], expired: bool) -> list[RecordSpan]:
        """The retained records, each looked up on its own."""
        offset_of, mapped_to = self._keys.offsets.get, self._keys.end
        kept = []
        for span in spans:
            offset = base + span.offset_delta
            if offset < mapped_to:
                key = span.key
                if key is None or offset_of(key, -1) > offset or (expired and span.tombstone):
                    continue
            kept.append(span)
        return kept

    def _must_stay(self, header: BatchHeader, control: bool) -> bool:
        """Whether the header is needed: for the producer's last sequence or epoch, or as the last batch to clean."""
        work = self._work
        if header.last_offset + 1 == work.upper:
            return True
        producer_id = header.producer_id
        if producer_id < 0:
            return False
        last = work.last_data.get(producer_id)
        if last is not None:
            return header.last_offset == last
        return control and work.last_epochs.get(producer_id) == header.producer_epoch

    def _with_horizon(self, header: BatchHeader, body: bytes, kept: Sequence[RecordSpan]) -> tuple[BatchHeader, bytes]:
        """Set the delete horizon of tombstones, and of markers without data (KIP-534)."""
        horizon = self._work.now + self._work.delete_retention_ms
        shift = horizon - header.base_timestamp
        moved = b"".join([moved_in_time(body, span, shift) for span in kept])
        return _sealed(header, moved, kept, horizon)


def _sealed(
    header: BatchHeader, body: bytes, kept: Sequence[RecordSpan], horizon: int | None = None
) -> tuple[BatchHeader, bytes]:
    """A batch with the retained records, in its codec."""
    latest = header.max_timestamp
    if not header.attributes & LOG_APPEND_TIME:
        latest = header.base_timestamp + max(span.time_delta for span in kept)
    codec = header.attributes & CODEC_MASK
    if codec:
        body = compress(codec, body)
    changed = header._replace(
        length=HEADER_SIZE - PREFIX_SIZE + len(body),
        attributes=header.attributes if horizon is None else header.attributes | DELETE_HORIZON,
        base_timestamp=header.base_timestamp if horizon is None else horizon,
        max_timestamp=latest,
        record_count=len(kept),
    )
    return changed, seal(changed, body)


def _emptied(header: BatchHeader) -> tuple[BatchHeader, bytes]:
    """An empty batch: its header has sequence, epoch and last offset."""
    changed = header._replace(
        length=HEADER_SIZE - PREFIX_SIZE,
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return changed, seal(changed, b"")
