"""Checks of a batch's records against the rules of its topic. Runs in worker processes; asks nobody, and writes nothing.

A batch with a record to reject is refused as a whole. Dead letters are taken out of it: what is left keeps its offsets,
sequences and last offset delta, as after compaction, so that its producer's next batch follows it.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.log.settings import LogConfig
from moldau.replication import inspection
from moldau.replication.record_rules import Framing, Mode, RecordRules, SchemaText, SideRule
from moldau.schemas import Checker, ParsedSchema, SchemaError, checker, parse
from moldau.wire import dead_letters
from moldau.wire.batch import BatchHeader, read_header
from moldau.wire.compression import Codec, CorruptRecords
from moldau.wire.records import Header, Record, decode_records, encode_batch

MAGIC: Final = 0
FRAME_SIZE: Final = 5  # of Confluent's wire format: magic and id
GUID_MAGIC: Final = b"\x01"  # in a header with a GUID
GUID_HEADERS: Final = {"key": "__key_schema_id", "value": "__value_schema_id"}
LONGEST_REASON: Final = 300  # characters
LETTERS_BYTES: Final = 512 * 1024  # of the records of one batch of dead letters, unless a single record has more
PRODUCER: Final = "moldau.producer"  # producer id, epoch and sequence of a dead letter: the same for its copies

Failure = tuple[int, str]  # a record's place in its batch, and what is wrong with it


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
            checked = checked._replace(warned=len(warned), first=_shown(warned))
        if dead:
            letters = self._letters([(records[place], reason) for place, reason in sorted(dead.items())], header, partition)
            if isinstance(letters, Refusal):
                return Checked(letters)
            kept = [record for place, record in enumerate(records) if place not in dead]
            batch = _thinned(header, kept, self._config)
            checked = checked._replace(batch=batch, letters=letters, dead=len(dead), first=_shown(dead))
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
            letter_batch = encode_batch(
                [record._replace(offset=offset) for offset, record in enumerate(group)], codec=header.codec
            )
            if len(letter_batch) > self._rules.largest_letter:
                place = group[0].offset
                reason = f"{failed[0][1]} It is also too large for the dead letter topic."
                return inspection.refuse(WireError.INVALID_RECORD, ((place, reason),))
            batches.append(letter_batch)
        return tuple(batches)

    def _letter(self, record: Record, reason: str, header: BatchHeader, partition: int) -> Record:
        told = dead_letters.letter_headers(reason, self._rules.topic, partition, record.timestamp)
        if header.producer_id >= 0:
            sequence = (header.base_sequence + record.offset) & 0x7FFFFFFF
            told.append((PRODUCER, b"%d/%d/%d" % (header.producer_id, header.producer_epoch, sequence)))
        return record._replace(headers=record.headers + tuple(told))
