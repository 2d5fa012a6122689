"""May these batches begin a transaction in their partitions? Asked of the transaction coordinator before a produce.

KIP-890: a batch of a transaction is written only where the coordinator knows that the partition belongs to it. A
partition whose log has the transaction open already need not be asked about. A coordinator on this broker that waits
for nobody answers at once; else the proofs are promised, and `holding` keeps the requests of the producer meanwhile.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import TopicPartition
from moldau.base.later import NowOrLater, chain
from moldau.log.producers import NOT_ASKED, NOT_NEEDED, Verification
from moldau.replication.partition import Partition
from moldau.wire.batch import HEADER, HEADER_SIZE, MAGIC, TRANSACTIONAL

ADDS_SINCE = 12  # the produce version that adds partitions by itself: transaction version 2
ABORTABLE_SINCE = 11  # the produce version that knows TRANSACTION_ABORTABLE
SEVERAL_PRODUCERS = Refusal(
    WireError.INVALID_PRODUCER_ID_MAPPING, "The batches of a transaction must come from one producer."
)
NOT_IN_TRANSACTION = Refusal(WireError.INVALID_TXN_STATE, "The partition was not added to the transaction.")
# The coordinator cannot say now. Clients may not try again after its own error, but they do after this one.
_TRY_AGAIN = (
    WireError.NETWORK_EXCEPTION,
    WireError.COORDINATOR_LOAD_IN_PROGRESS,
    WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.NOT_COORDINATOR,
    WireError.UNKNOWN_TOPIC_OR_PARTITION,  # it has not heard of a new topic yet
    WireError.OPERATION_NOT_ATTEMPTED,
)

Proof = Verification | Refusal
Proofs = dict[Partition, Proof] | Refusal


class Admission(Protocol):
    """What a produce asks of the transaction coordinator."""

    def add_or_verify(
        self, transactional_id: str, producer_id: int, producer_epoch: int, partitions: list[TopicPartition], adds: bool
    ) -> NowOrLater[Mapping[TopicPartition, WireError]]:
        """Which partitions the producer's open transaction includes; with `adds` they are added to it."""


class Batch(NamedTuple):
    """A transactional batch in a request, and where it is to go."""

    partition: Partition
    producer_id: int
    epoch: int
    sequence: int
    last_offset_delta: int


def transactional_batch(partition: Partition, data: memoryview) -> Batch | None:
    """What matters of a batch here; None if it is not part of a transaction, or so broken that appending refuses it."""
    if len(data) < HEADER_SIZE:
        return None
    _, _, _, magic, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = HEADER.unpack_from(data)
    if magic != MAGIC or not attributes & TRANSACTIONAL or producer_id < 0:
        return None
    return Batch(partition, producer_id, epoch, sequence, delta)


def prove(
    coordinator: Admission, transactional_id: bytes, batches: Iterable[Batch], version: int, *, enabled: bool, now: int
) -> NowOrLater[Proofs]:
    """How each batch that begins a transaction in its partition was let in, or why not; or why none of the request is.

    `enabled`: transaction.partition.verification.enable.
    """
    batches = list(batches)
    if len({(batch.producer_id, batch.epoch) for batch in batches}) > 1:
        return SEVERAL_PRODUCERS
    adds = version >= ADDS_SINCE
    proofs: dict[Partition, Proof] = {}
    asked: dict[TopicPartition, Partition] = {}
    for batch in batches:
        proof = _known(batch) if adds or enabled else NOT_NEEDED
        if proof is None:
            producers = batch.partition.log.producers
            proof = producers.verify(batch.producer_id, batch.epoch, batch.sequence, adds, now)
            asked[TopicPartition(batch.partition.topic, batch.partition.index)] = batch.partition
            proof = proof if enabled else NOT_NEEDED
        proofs[batch.partition] = proof
    if not asked:
        return proofs
    name = transactional_id.decode(errors="replace")
    answers = coordinator.add_or_verify(name, batches[0].producer_id, batches[0].epoch, list(asked), adds)
    return chain(answers, partial(_with_answers, proofs, asked, version))


def _with_answers(
    proofs: dict[Partition, Proof],
    asked: Mapping[TopicPartition, Partition],
    version: int,
    answers: Mapping[TopicPartition, WireError],
) -> Proofs:
    for key, partition in asked.items():
        error = answers[key]
        if error is not WireError.NONE:
            proofs[partition] = _for_producer(Refusal.of(error), version)
    return proofs


def _known(batch: Batch) -> Proof | None:
    """What the partition says of a batch by itself; None: the coordinator is to be asked."""
    _, producer_id, epoch, sequence, delta = batch
    producers = batch.partition.log.producers
    if producers.open_in(producer_id, epoch) or producers.written(producer_id, epoch, sequence, delta):
        return NOT_ASKED
    return producers.check_epoch(producer_id, epoch)


def _for_producer(refusal: Refusal, version: int) -> Refusal:
    """The coordinator's refusal as a produce of this version may answer it."""
    error = refusal.error
    if error is WireError.PRODUCER_FENCED:
        return Refusal(WireError.INVALID_PRODUCER_EPOCH, refusal.message)
    if error is WireError.INVALID_TXN_STATE or (error is WireError.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE):
        return NOT_IN_TRANSACTION
    if error in _TRY_AGAIN or (error is WireError.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        return Refusal(WireError.NOT_ENOUGH_REPLICAS, f"The transaction cannot be verified now: {error.name}.")
    return refusal
