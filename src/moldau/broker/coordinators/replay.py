"""How a shard's machine gets its state: all records of its log, read in a thread. Decides and writes nothing."""

from typing import Any, Protocol

from moldau.log.log import Log
from moldau.wire.batch import CONTROL, TRANSACTIONAL
from moldau.wire.records import ControlType, decode_control, iter_records

LARGEST_BATCH = 256 * 1024 * 1024  # bytes that a batch of a coordinator's log may unpack to


class Replayed(Protocol):
    """As much of a machine as a replay needs."""

    def replay(self, key: bytes, value: bytes | None, producer_id: int = -1) -> None: ...
    def end_transaction(self, producer_id: int, commit: bool) -> None: ...


class Closing(Protocol):
    closed: bool
    machine: Any


def replay(shard: Closing, stored: Log) -> int:
    """Feed a machine all records of its log, until somebody closes the shard. Returns how many there were."""
    machine: Replayed = shard.machine
    count = 0
    for header, batch in stored.read_batches(stored.start_offset):
        if shard.closed:
            break
        if header.attributes & CONTROL:
            _replay_markers(header.producer_id, batch, machine)
            continue
        producer_id = header.producer_id if header.attributes & TRANSACTIONAL else -1
        for record in iter_records(batch, limit=LARGEST_BATCH):
            if record.key is not None:
                machine.replay(record.key, record.value, producer_id)
                count += 1
    return count


def _replay_markers(producer_id: int, batch: memoryview | bytes, machine: Replayed) -> None:
    for record in iter_records(batch, limit=LARGEST_BATCH):
        kind = decode_control(record).type
        if kind in (ControlType.ABORT, ControlType.COMMIT):
            machine.end_transaction(producer_id, kind is ControlType.COMMIT)
