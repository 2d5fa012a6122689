"""Checks of a batch's records against the rules of its topic. Runs in worker processes; asks nobody.

A batch with a record to reject is refused as a whole. Dead letters are taken out of it: what is left keeps its offsets,
sequences and last offset delta, as after compaction, so that its producer's next batch follows it.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.log.settings import LogConfig
from moldau.replication import inspection
from moldau.replication.record_rules import Mode, RecordRules
from moldau.replication.rule_checks import RuleChecks
from moldau.wire.batch import BatchHeader, read_header
from moldau.wire.compression import Codec, CorruptRecords
from moldau.wire.dead_letters import refused_headers
from moldau.wire.records import Record, decode_records, encode_batch

LETTERS_BYTES: Final = 512 * 1024  # of the records in one batch of dead letters, unless a single record has more
RECORD_OVERHEAD: Final = 64  # of a record and its headers, about
LAST_SEQUENCE: Final = 2**31 - 1


class Checked(NamedTuple):
    """What became of a batch."""

    refusal: Refusal | None = None
    batch: bytes | None = None  # None: as it came
    letters: tuple[bytes, ...] = ()  # batches for the dead letter topic
    dead: int = 0  # records in them
    warned: int = 0
    first: str = ""  # of the reasons for dead letters and warnings


class BatchChecks:
    """The rules of one topic, with their schemas read as they are needed."""

    def __init__(self, rules: RecordRules) -> None:
        self._rules = rules
        self._config = rules.storage.config()
        self._key = [RuleChecks(rule, "key", compacts=rules.storage.compacts) for rule in rules.key]
        self._value = [RuleChecks(rule, "value", compacts=rules.storage.compacts) for rule in rules.value]

    def check(self, batch: bytes, partition: int) -> Checked:
        try:
            return self._check(batch, partition)
        except CorruptRecords as problem:
            return Checked(Refusal(WireError.CORRUPT_MESSAGE, str(problem)))

    def _check(self, batch: bytes, partition: int) -> Checked:
        records = decode_records(memoryview(batch), limit=inspection.LARGEST_UNPACKED)
        failures: dict[Mode, dict[int, str]] = {mode: {} for mode in Mode}
        for side in (self._key, self._value):
            for rule in side:
                for place, reason in rule.failures(records):
                    failures[rule.mode].setdefault(place, reason)
        refused, dead, warned = failures[Mode.REJECT], failures[Mode.DEAD_LETTER], failures[Mode.WARN]
        if refused:
            wrong = sorted(refused.items())[: inspection.MAX_RECORD_ERRORS]
            return Checked(inspection.refuse(WireError.INVALID_RECORD, tuple(wrong)))
        header, checked = read_header(batch), Checked()
        if warned:
            checked = checked._replace(warned=len(warned), first=_first(warned))
        if dead:
            failed = [(records[place], reason) for place, reason in sorted(dead.items())]
            letters = self._letters(failed, header, partition)
            if isinstance(letters, Refusal):
                return Checked(letters)
            kept = [record for place, record in enumerate(records) if place not in dead]
            batch = _thinned(header, kept, self._config)
            checked = checked._replace(batch=batch, letters=letters, dead=len(dead), first=_first(dead))
        stored = inspection.inspect(batch, self._config)
        if isinstance(stored, Refusal):
            return Checked(stored)
        return checked if stored is batch else checked._replace(batch=stored)

    def _letters(
        self, failed: Sequence[tuple[Record, str]], header: BatchHeader, partition: int
    ) -> tuple[bytes, ...] | Refusal:
        """Dead letters, in batches that their topic takes."""
        letters = [self._letter(record, reason, header, partition) for record, reason in failed]
        batches = []
        for group in _grouped(letters):
            renumbered = [record._replace(offset=offset) for offset, record in enumerate(group)]
            batch = encode_batch(renumbered, codec=header.codec)
            if len(batch) > self._rules.largest_letter:
                place = group[0].offset
                too_large = f"A batch of {len(batch)} bytes is too large for the dead letter topic."
                return inspection.refuse(WireError.INVALID_RECORD, ((place, too_large),))
            batches.append(batch)
        return tuple(batches)

    def _letter(self, record: Record, reason: str, header: BatchHeader, partition: int) -> Record:
        producer = None
        if header.producer_id >= 0:
            sequence = (header.base_sequence + record.offset) & LAST_SEQUENCE
            producer = header.producer_id, header.producer_epoch, sequence
        told = refused_headers(reason, self._rules.topic, partition, record.timestamp, producer)
        return record._replace(headers=(*record.headers, *told))


def _grouped(letters: Sequence[Record]) -> Iterator[list[Record]]:
    group: list[Record] = []
    size = 0
    for record in letters:
        more = RECORD_OVERHEAD + len(record.key or b"") + len(record.value or b"")
        more += sum(len(name) + len(value or b"") for name, value in record.headers)
        if group and size + more > LETTERS_BYTES:
            yield group
            group, size = [], 0
        group.append(record)
        size += more
    yield group


def _thinned(header: BatchHeader, kept: Sequence[Record], config: LogConfig) -> bytes:
    """The batch with some of its records only, which keep their offsets; the header alone if none is left."""
    codec = Codec(header.codec)
    return encode_batch(
        kept,
        codec=codec,
        level=inspection.level_of(codec, config),
        last_offset=header.last_offset_delta,
        attributes=header.attributes,
        max_timestamp=None if kept else header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
    )


def _first(failures: dict[int, str]) -> str:
    place = min(failures)
    return f"Record {place}: {failures[place]}"
