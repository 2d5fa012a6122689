"""What a partition remembers of its producers, so that a retried batch is written once (KIP-98). Does no I/O.

Per producer id: its epoch and its last five batches. The state follows the log: `update` is called for each batch that
is written, live or replayed, and snapshots spare the replay of all but the tail.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from struct import Struct
from typing import NamedTuple

from crc32c import crc32c

from moldau.base.errors import Refusal, WireError

BATCHES_KEPT = 5  # a Java producer has at most five requests in flight
MAX_SEQUENCE = 2**31 - 1
SNAPSHOT_VERSION = 1
_SNAPSHOT_HEAD = Struct(">hIi")  # version, checksum of all that follows it, number of entries
_CRC_START = 6
_SNAPSHOT_ENTRY = Struct(">qhiqiqiq")


class CorruptSnapshotError(ValueError):
    """A snapshot file is not what a snapshot should be."""


class Written(NamedTuple):
    """A batch of a producer that is in the log; also the answer to a duplicate of it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    timestamp: int


class Producer:
    """State of one producer id."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "epoch",
        "from_snapshot",
        "last_sequence",
        "last_timestamp",
        "producer_id",
        "txn_start_offset",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.batches: deque[Written] = deque(maxlen=BATCHES_KEPT)
        self.last_sequence = -1
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.txn_start_offset = -1
        self.from_snapshot = False  # a snapshot keeps the last batch alone


def last_sequence(base_sequence: int, last_offset_delta: int) -> int:
    """Sequences count to 2³¹−1 and go on at 0."""
    return (base_sequence + last_offset_delta) & MAX_SEQUENCE


class Producers:
    """All producers of one partition."""

    __slots__ = ("_states", "expiration_ms")

    def __init__(self, expiration_ms: int = 86_400_000) -> None:
        self._states: dict[int, Producer] = {}
        self.expiration_ms = expiration_ms

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._states.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._states.get(producer_id)

    def check(
        self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int
    ) -> Written | Refusal | None:
        """None: the batch may be written. Written: it was, there. Refusal: it must not be."""
        state = self._states.get(producer_id)
        if state is None:
            return None  # after retention or expiry no sequence is known: any is taken (KIP-360)
        if state.epoch == epoch and state.last_sequence + 1 == base_sequence:
            return None
        return self._check_odd(state, epoch, base_sequence, last_sequence(base_sequence, last_offset_delta))

    @staticmethod
    def _check_odd(state: Producer, epoch: int, base_sequence: int, last: int) -> Written | Refusal | None:
        if epoch < state.epoch:
            return Refusal(
                WireError.INVALID_PRODUCER_EPOCH,
                f"Producer {state.producer_id} writes with epoch {epoch}; epoch {state.epoch} was seen.",
            )
        if epoch > state.epoch:
            if base_sequence == 0:
                return None
            return Refusal(
                WireError.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"Producer {state.producer_id} begins epoch {epoch} with sequence {base_sequence} instead of 0.",
            )
        for batch in state.batches:
            if batch.base_sequence == base_sequence and batch.last_sequence == last:
                return batch
        if base_sequence == (0 if state.last_sequence == MAX_SEQUENCE else state.last_sequence + 1):
            return None
        return Refusal(
            WireError.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"Producer {state.producer_id} sent sequence {base_sequence}; its last one is {state.last_sequence}.",
        )

    def update(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        base_offset: int,
        timestamp: int,
        transactional: bool,
    ) -> None:
        """The batch is in the log."""
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = Producer(producer_id, epoch)
        elif state.epoch != epoch:
            state.epoch = epoch
            state.batches.clear()
        last = (base_sequence + last_offset_delta) & MAX_SEQUENCE
        state.last_sequence = last
        state.last_timestamp = timestamp
        state.batches.append(
            tuple.__new__(Written, (base_sequence, last, base_offset, base_offset + last_offset_delta, timestamp))
        )
        if transactional and state.txn_start_offset < 0:
            state.txn_start_offset = base_offset

    def end_transaction(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int) -> None:
        """A transaction marker is in the log."""
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = Producer(producer_id, epoch)
        elif state.epoch != epoch:
            state.epoch = epoch
            state.batches.clear()
            state.last_sequence = -1
        state.coordinator_epoch = max(state.coordinator_epoch, coordinator_epoch)
        state.txn_start_offset = -1
        state.last_timestamp = timestamp

    def expire(self, now: int) -> None:
        """Forgets producers that wrote nothing for `producer.id.expiration.ms` and have no open transaction."""
        for state in [state for state in self if self._expired(state, now)]:
            del self._states[state.producer_id]

    def _expired(self, state: Producer, now: int) -> bool:
        return state.txn_start_offset < 0 and now - state.last_timestamp >= self.expiration_ms

    def clear(self) -> None:
        self._states.clear()

    def load(self, states: Iterable[Producer], now: int) -> None:
        self._states = {state.producer_id: state for state in states if not self._expired(state, now)}

    def refill(self, producer_id: int, batches: Iterable[Written]) -> None:
        """Gives a producer that a snapshot brought back the older batches that the log still has."""
        state = self._states[producer_id]
        state.from_snapshot = False
        known = state.batches[0].base_offset if state.batches else -1
        older = [batch for batch in batches if batch.base_offset < known]
        state.batches.extendleft(reversed(older[len(state.batches) - BATCHES_KEPT :]))

    def snapshot(self) -> bytes:
        """The content of a `.snapshot` file."""
        entries = []
        for state in self:
            last = state.batches[-1] if state.batches else None
            entries.append(
                _SNAPSHOT_ENTRY.pack(
                    state.producer_id,
                    state.epoch,
                    last.last_sequence if last else -1,
                    last.last_offset if last else -1,
                    last.last_offset - last.base_offset if last else 0,
                    state.last_timestamp,
                    state.coordinator_epoch,
                    state.txn_start_offset,
                )
            )
        data = bytearray(_SNAPSHOT_HEAD.pack(SNAPSHOT_VERSION, 0, len(entries)))
        data += b"".join(entries)
        _SNAPSHOT_HEAD.pack_into(data, 0, SNAPSHOT_VERSION, crc32c(memoryview(data)[_CRC_START:]), len(entries))
        return bytes(data)


def read_snapshot(data: bytes) -> list[Producer]:
    """The producers in a `.snapshot` file; raises CorruptSnapshotError."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too few")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"version {version} is not known")
    if crc != crc32c(memoryview(data)[_CRC_START:]):
        raise CorruptSnapshotError("the checksum is wrong")
    if len(data) != _SNAPSHOT_HEAD.size + count * _SNAPSHOT_ENTRY.size:
        raise CorruptSnapshotError(f"{count} entries do not fill {len(data)} bytes")
    return [_read_entry(*entry) for entry in _SNAPSHOT_ENTRY.iter_unpack(memoryview(data)[_SNAPSHOT_HEAD.size :])]


def _read_entry(
    producer_id: int,
    epoch: int,
    sequence: int,
    offset: int,
    offset_delta: int,
    timestamp: int,
    coordinator_epoch: int,
    txn_start_offset: int,
) -> Producer:
    state = Producer(producer_id, epoch)
    if offset >= 0:
        base_sequence = (sequence - offset_delta) & MAX_SEQUENCE
        state.batches.append(Written(base_sequence, sequence, offset - offset_delta, offset, timestamp))
    state.last_sequence = sequence
    state.last_timestamp = timestamp
    state.coordinator_epoch = coordinator_epoch
    state.txn_start_offset = txn_start_offset
    state.from_snapshot = True
    return state
