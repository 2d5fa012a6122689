"""Loading of a shard: replay all records of its log to the state machine. Runs in a thread."""

from typing import Protocol

from moldau.log.log import Log
from moldau.wire.batch import CONTROL, TRANSACTIONAL
from moldau.wire.records import ControlType, decode_control, iter_records

MAX_BATCH_BYTES = 256 * 1024 * 1024  # of one decompressed batch


class Replayed(Protocol):
    """The part of a state machine that a replay needs."""

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, commit: bool) -> None: ...


class Closing(Protocol):
    """A shard that may be closed while it loads."""

    closed: bool

    @property
    def machine(self) -> Replayed: ...


def replay(shard: Closing, stored: Log) -> int:
    """Replay the log to the shard's machine until the shard is closed. Returns the number of records."""
    machine = shard.machine
    count = 0
    for header, batch in stored.read_batches(stored.start_offset):
        if shard.closed:
            break
        if header.attributes & CONTROL:
            _replay_markers(header.producer_id, batch, machine)
            continue
        producer_id = header.producer_id if header.attributes & TRANSACTIONAL else -1
        for record in iter_records(batch, limit=MAX_BATCH_BYTES):
            if record.key is not None:
                machine.replay(record.key, record.value, producer_id)
                count += 1
    return count


def _replay_markers(producer_id: int, batch: memoryview | bytes, machine: Replayed) -> None:
    for record in iter_records(batch, limit=MAX_BATCH_BYTES):
        kind = decode_control(record).type
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            machine.end_transaction(producer_id, kind is ControlType.COMMIT)
