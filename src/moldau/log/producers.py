"""Producers: the producer state of one partition, for idempotence and transactions (KIP-98). Does no I/O.

Per producer id: its epoch, its last five batches and the first offset of its open transaction. `update` and
`end_transaction` follow every appended or replayed batch; snapshots spare the replay of all but the end of the log.
Verifications by the transaction coordinator (KIP-890) are in memory only.
"""

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from moldau.base.crc import crc32c
from moldau.base.errors import Refusal, WireError

BATCHES_KEPT: Final = 5  # a Java producer has at most five requests in flight
MAX_SEQUENCE: Final = 2**31 - 1
MAX_EPOCH: Final = 2**15 - 1
STRICT_MARKERS: Final = 2  # from this transaction version on markers have an epoch of their own (KIP-890, KIP-1228)
NONE_OPEN: Final = 2**63 - 1  # the first open offset where no transaction is open
SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Struct(">hIi")  # version, checksum of all that follows it, number of entries
_CRC_START: Final = 6
_SNAPSHOT_ENTRY: Final = Struct(">qhiqiqiq")


class CorruptSnapshotError(ValueError):
    """A snapshot file is corrupt."""


class BatchMetadata(NamedTuple):
    """A producer's batch in the log, by which a duplicate is answered."""

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
        self.batches: deque[BatchMetadata] = deque(maxlen=BATCHES_KEPT)
        self.last_sequence = -1
        self.last_timestamp = -1
        self.coordinator_epoch = -1
        self.txn_start_offset = -1
        self.from_snapshot = False  # a snapshot has the last batch only


class Verification:
    """A verification, pending or done, that a producer's transaction includes this partition (KIP-890).

    The first batch of a transaction here needs the one that it was verified with. A marker voids it, so that a batch
    that was verified before the transaction ended cannot be appended after it.
    """

    __slots__ = ("begins_at_zero", "epoch", "lowest_sequence", "since")

    def __init__(self, epoch: int, sequence: int, begins_at_zero: bool, now: int) -> None:
        self.epoch = epoch
        self.lowest_sequence = sequence  # seen so far: later ones must not be appended first
        self.begins_at_zero = begins_at_zero  # transaction version 2: each transaction has its own epoch
        self.since = now

    def outlives(self, marker_epoch: int) -> bool:
        """Whether a marker ends an earlier transaction than the verified one.

        With an epoch for each transaction, a marker has the next epoch (KIP-890): that of the next transaction.
        """
        return self.begins_at_zero and marker_epoch <= self.epoch


NOT_ASKED: Final = Verification(-1, -1, False, 0)  # enough for a transaction that is open already
NOT_NEEDED: Final = Verification(-1, -1, False, 0)  # transaction.partition.verification.enable is off


def last_sequence(base_sequence: int, last_offset_delta: int) -> int:
    """Sequences wrap from 2³¹−1 to 0; a coordinator's batches have none."""
    return (base_sequence + last_offset_delta) & MAX_SEQUENCE if base_sequence >= 0 else -1


class Producers:
    """All producers of one partition."""

    __slots__ = ("_open", "_states", "_verifications", "expiration_ms", "first_open_offset")

    def __init__(self, expiration_ms: int = 86_400_000) -> None:
        self._states: dict[int, Producer] = {}
        self._open: OrderedDict[int, int] = OrderedDict()  # transactions: first offset → producer id, in that order
        self._verifications: dict[int, Verification] = {}
        self.first_open_offset = NONE_OPEN  # of the oldest open transaction
        self.expiration_ms = expiration_ms

    def __len__(self) -> int:
        return len(self._states)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._states.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._states.get(producer_id)

    def coordinator_epoch_of(self, producer_id: int) -> int:
        state = self._states.get(producer_id)
        return -1 if state is None else state.coordinator_epoch

    def check(
        self,
        producer_id: int,
        epoch: int,
        base_sequence: int,
        last_offset_delta: int,
        transactional: bool = False,
        proof: Verification = NOT_ASKED,
    ) -> BatchMetadata | Refusal | None:
        """None: a client's batch may be appended. BatchMetadata: it was already. Refusal: it must not be."""
        state = self._states.get(producer_id)
        if state is None:
            if transactional:
                return self._check_admitted(Producer(producer_id, -1), epoch, base_sequence, proof)
            return None  # after retention or expiration any sequence is accepted (KIP-360)
        if (
            state.epoch == epoch
            and state.last_sequence + 1 == base_sequence
            and transactional is (state.txn_start_offset >= 0)
        ):
            return None
        written = self.written(producer_id, epoch, base_sequence, last_offset_delta)
        if written is not None:
            return written
        if transactional and (state.txn_start_offset < 0 or epoch != state.epoch):
            refusal = self._check_admitted(state, epoch, base_sequence, proof)
            if refusal is not None:
                return refusal
        return self._check_order(state, epoch, base_sequence, transactional)

    def _check_admitted(self, state: Producer, epoch: int, sequence: int, proof: Verification) -> Refusal | None:
        """The first batch of a transaction must be verified, and have the lowest sequence seen."""
        if epoch < state.epoch:
            return _old_epoch(state, epoch)
        asked = self._verifications.get(state.producer_id)
        if proof is not NOT_NEEDED and (asked is None or proof is not asked):
            return Refusal(WireError.INVALID_TXN_STATE, "The batch is not part of an ongoing transaction.")
        if asked is None:
            return None
        if asked.begins_at_zero and sequence != 0 and not state.batches:
            return _out_of_order(state, f"began a transaction with sequence {sequence} instead of 0")
        if sequence > asked.lowest_sequence:
            return _out_of_order(state, f"sent sequence {sequence} before {asked.lowest_sequence}, which it sent first")
        return None

    @staticmethod
    def _check_order(state: Producer, epoch: int, base_sequence: int, transactional: bool) -> Refusal | None:
        if epoch < state.epoch:
            return _old_epoch(state, epoch)
        if epoch > state.epoch:
            if base_sequence != 0:
                return _out_of_order(state, f"begins epoch {epoch} with sequence {base_sequence} instead of 0")
        elif base_sequence != (0 if state.last_sequence == MAX_SEQUENCE else state.last_sequence + 1):
            return _out_of_order(state, f"sent sequence {base_sequence}; its last one is {state.last_sequence}")
        if state.txn_start_offset >= 0 and not transactional:
            return Refusal(
                WireError.INVALID_TXN_STATE,
                f"Producer {state.producer_id} has an open transaction; the batch is not part of it.",
            )
        return None

    def check_epoch(self, producer_id: int, epoch: int) -> Refusal | None:
        """Whether a coordinator may append for a producer: its batches have an epoch, but no sequences."""
        state = self._states.get(producer_id)
        return _old_epoch(state, epoch) if state is not None and epoch < state.epoch else None

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, version: int) -> Refusal | None:
        """Whether a marker may be appended, with or without an open transaction.

        KIP-1228: from transaction version 2 on a marker's epoch is above that of the transaction it ends, so that a
        late one ends nothing. It equals the last one seen if that was the same marker, sent again, or if epochs are
        exhausted.
        """
        state = self._states.get(producer_id)
        if state is None:
            return None
        if epoch < state.epoch:
            return _old_epoch(state, epoch)
        ended = state.txn_start_offset < 0 or epoch == MAX_EPOCH
        if epoch == state.epoch and version >= STRICT_MARKERS and not ended:
            return _old_epoch(state, epoch)
        if coordinator_epoch < state.coordinator_epoch:
            return Refusal(
                WireError.TRANSACTION_COORDINATOR_FENCED,
                f"The coordinator epoch {coordinator_epoch} of the marker is older than {state.coordinator_epoch}.",
            )
        return None

    def written(self, producer_id: int, epoch: int, base_sequence: int, last_offset_delta: int) -> BatchMetadata | None:
        """The batch in the log that this one duplicates."""
        state = self._states.get(producer_id)
        if state is not None and state.epoch == epoch:
            last = last_sequence(base_sequence, last_offset_delta)
            for batch in state.batches:
                if batch.base_sequence == base_sequence and batch.last_sequence == last:
                    return batch
        return None

    def open_in(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction here with this epoch."""
        state = self._states.get(producer_id)
        return state is not None and state.txn_start_offset >= 0 and state.epoch == epoch

    def verify(self, producer_id: int, epoch: int, sequence: int, begins_at_zero: bool, now: int) -> Verification:
        """Begin, or join, the verification of a producer's transaction."""
        asked = self._verifications.get(producer_id)
        if asked is None:
            asked = self._verifications[producer_id] = Verification(epoch, sequence, begins_at_zero, now)
        elif epoch > asked.epoch:
            asked.epoch, asked.lowest_sequence = epoch, sequence
        elif epoch == asked.epoch and sequence < asked.lowest_sequence:
            asked.lowest_sequence = sequence
        return asked

    def void(self, producer_id: int) -> None:
        """Void verifications from before the end of a transaction, where markers have no epoch of their own."""
        self._verifications.pop(producer_id, None)

    def holds(self, producer_id: int, asked: Verification) -> bool:
        """Whether a verification still counts: no marker has been appended since."""
        return self._verifications.get(producer_id) is asked

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
        """A batch was appended."""
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = Producer(producer_id, epoch)
        elif state.epoch != epoch:
            state.epoch = epoch
            state.batches.clear()
        last = (base_sequence + last_offset_delta) & MAX_SEQUENCE if base_sequence >= 0 else -1
        state.last_sequence = last
        state.last_timestamp = timestamp
        state.batches.append(
            tuple.__new__(BatchMetadata, (base_sequence, last, base_offset, base_offset + last_offset_delta, timestamp))
        )
        if transactional:
            self._verifications.pop(producer_id, None)
            if state.txn_start_offset < 0:
                state.txn_start_offset = base_offset
                self._open[base_offset] = producer_id
                self.first_open_offset = min(self.first_open_offset, base_offset)

    def end_transaction(self, producer_id: int, epoch: int, coordinator_epoch: int, timestamp: int) -> int:
        """A marker was appended. Returns the first offset of the transaction that it ended, or -1 if there was none."""
        state = self._states.get(producer_id)
        if state is None:
            state = self._states[producer_id] = Producer(producer_id, epoch)
        elif state.epoch != epoch:
            state.epoch = epoch
            state.batches.clear()
            state.last_sequence = -1
        first_offset = state.txn_start_offset
        state.coordinator_epoch = coordinator_epoch
        state.txn_start_offset = -1
        state.last_timestamp = timestamp
        asked = self._verifications.get(producer_id)
        if asked is not None and not asked.outlives(epoch):
            del self._verifications[producer_id]
        if first_offset >= 0:
            del self._open[first_offset]
            self.first_open_offset = next(iter(self._open), NONE_OPEN)
        return first_offset

    def expire(self, now: int) -> None:
        """Remove producers that are idle for `producer.id.expiration.ms` and have no open transaction."""
        for state in [state for state in self if self._expired(state, now)]:
            del self._states[state.producer_id]
        lingering = [each for each, asked in self._verifications.items() if now - asked.since >= self.expiration_ms]
        for producer_id in lingering:
            del self._verifications[producer_id]

    def _expired(self, state: Producer, now: int) -> bool:
        return state.txn_start_offset < 0 and now - state.last_timestamp >= self.expiration_ms

    def clear(self) -> None:
        self.load((), 0)

    def load(self, states: Iterable[Producer], now: int) -> None:
        self._states = {state.producer_id: state for state in states if not self._expired(state, now)}
        began = sorted((state.txn_start_offset, state.producer_id) for state in self if state.txn_start_offset >= 0)
        self._open = OrderedDict(began)
        self.first_open_offset = next(iter(self._open), NONE_OPEN)
        self._verifications.clear()

    def refill(self, producer_id: int, batches: Iterable[BatchMetadata]) -> None:
        """Add the older batches in the log to a producer from a snapshot."""
        state = self._states[producer_id]
        state.from_snapshot = False
        known = state.batches[0].base_offset if state.batches else -1
        older = [batch for batch in batches if batch.base_offset < known]
        room = BATCHES_KEPT - len(state.batches)  # a full deque would drop its newest batch
        state.batches.extendleft(islice(reversed(older), room))

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


def _old_epoch(state: Producer, epoch: int) -> Refusal:
    return Refusal(
        WireError.INVALID_PRODUCER_EPOCH,
        f"Producer {state.producer_id} is fenced: its epoch {epoch} is older than the current epoch {state.epoch}.",
    )


def _out_of_order(state: Producer, what: str) -> Refusal:
    return Refusal(WireError.OUT_OF_ORDER_SEQUENCE_NUMBER, f"Producer {state.producer_id} {what}.")


def read_snapshot(data: bytes) -> list[Producer]:
    """The producers in a `.snapshot` file; raises CorruptSnapshotError."""
    if len(data) < _SNAPSHOT_HEAD.size:
        raise CorruptSnapshotError(f"{len(data)} bytes are too short")
    version, crc, count = _SNAPSHOT_HEAD.unpack_from(data)
    if version != SNAPSHOT_VERSION:
        raise CorruptSnapshotError(f"unknown version {version}")
    if crc != crc32c(memoryview(data)[_CRC_START:]):
        raise CorruptSnapshotError("wrong checksum")
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
        base_sequence = (sequence - offset_delta) & MAX_SEQUENCE if sequence >= 0 else -1
        state.batches.append(BatchMetadata(base_sequence, sequence, offset - offset_delta, offset, timestamp))
    state.last_sequence = sequence
    state.last_timestamp = timestamp
    state.coordinator_epoch = coordinator_epoch
    state.txn_start_offset = txn_start_offset
    state.from_snapshot = True
    return state
