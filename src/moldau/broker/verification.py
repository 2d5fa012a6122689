"""Verification of transactional batches with the transaction coordinator before they are appended (KIP-890).

A batch of a transaction is written only where the coordinator knows the partition as part of it. A partition in whose
log the transaction is already open needs no verification. A coordinator on this broker usually errors at once; else
the result comes later, and `verification_queue` queues the requests of the producer meanwhile.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple, Protocol

from moldau.base.errors import Refusal, WireError
from moldau.base.ids import Epoch, TopicPartition
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
# The coordinator cannot say now. Clients do not retry after its own error; they do after NOT_ENOUGH_REPLICAS.
_RETRIABLE = (
    WireError.NETWORK_EXCEPTION,
    WireError.COORDINATOR_LOAD_IN_PROGRESS,
    WireError.COORDINATOR_NOT_AVAILABLE,
    WireError.NOT_COORDINATOR,
    WireError.UNKNOWN_TOPIC_OR_PARTITION,  # a new topic, which the coordinator does not know yet
    WireError.OPERATION_NOT_ATTEMPTED,
)

VerificationResult = Verification | Refusal
Verifications = dict[Partition, VerificationResult] | Refusal


class TransactionVerifier(Protocol):
    """The part of the transaction coordinator that Produce uses."""

    def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: Epoch,
        partitions: list[TopicPartition],
        adds: bool,
    ) -> NowOrLater[Mapping[TopicPartition, WireError]]:
        """Whether the producer's open transaction includes each partition; with `adds` the partitions join it."""


class TransactionalBatch(NamedTuple):
    """A transactional batch in a request, and its partition."""

    partition: Partition
    producer_id: int
    epoch: Epoch
    sequence: int
    last_offset_delta: int


def transactional_batch(partition: Partition, data: memoryview) -> TransactionalBatch | None:
    """The producer fields of a batch; None if it is not transactional, or so malformed that the append refuses it."""
    if len(data) < HEADER_SIZE:
        return None
    _, _, _, magic, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = HEADER.unpack_from(data)
    if magic != MAGIC or not attributes & TRANSACTIONAL or producer_id < 0:
        return None
    return TransactionalBatch(partition, producer_id, epoch, sequence, delta)


def verify(
    coordinator: TransactionVerifier,
    transactional_id: bytes,
    batches: Iterable[TransactionalBatch],
    version: int,
    *,
    enabled: bool,
    now: int,
) -> NowOrLater[Verifications]:
    """The verification or refusal of each batch that begins a transaction in its partition; or one for the request.

    `enabled`: transaction.partition.verification.enable.
    """
    batches = list(batches)
    if len({(batch.producer_id, batch.epoch) for batch in batches}) > 1:
        return SEVERAL_PRODUCERS
    adds = version >= ADDS_SINCE
    results: dict[Partition, VerificationResult] = {}
    unverified: dict[TopicPartition, Partition] = {}
    for batch in batches:
        result = _verify_locally(batch) if adds or enabled else NOT_NEEDED
        if result is None:
            producers = batch.partition.log.producers
            result = producers.verify(batch.producer_id, batch.epoch, batch.sequence, adds, now)
            unverified[TopicPartition(batch.partition.topic, batch.partition.index)] = batch.partition
            result = result if enabled else NOT_NEEDED
        results[batch.partition] = result
    if not unverified:
        return results
    name = transactional_id.decode(errors="replace")
    errors = coordinator.add_or_verify(name, batches[0].producer_id, batches[0].epoch, list(unverified), adds)
    return chain(errors, partial(_with_errors, results, unverified, version))


def _with_errors(
    results: dict[Partition, VerificationResult],
    unverified: Mapping[TopicPartition, Partition],
    version: int,
    errors: Mapping[TopicPartition, WireError],
) -> Verifications:
    for topic_partition, partition in unverified.items():
        error = errors[topic_partition]
        if error is not WireError.NONE:
            results[partition] = _for_producer(Refusal.of(error), version)
    return results


def _verify_locally(batch: TransactionalBatch) -> VerificationResult | None:
    """The verification of a batch by the partition's own log; None: the coordinator has to verify it."""
    _, producer_id, epoch, sequence, delta = batch
    producers = batch.partition.log.producers
    if producers.open_in(producer_id, epoch) or producers.written(producer_id, epoch, sequence, delta):
        return NOT_ASKED
    return producers.check_epoch(producer_id, epoch)


def _for_producer(refusal: Refusal, version: int) -> Refusal:
    """The coordinator's refusal in terms that a Produce of this version knows."""
    error = refusal.error
    if error is WireError.PRODUCER_FENCED:
        return Refusal(WireError.INVALID_PRODUCER_EPOCH, refusal.message)
    if error is WireError.INVALID_TXN_STATE or (error is WireError.TRANSACTION_ABORTABLE and version < ABORTABLE_SINCE):
        return NOT_IN_TRANSACTION
    if error in _RETRIABLE or (error is WireError.CONCURRENT_TRANSACTIONS and version < ADDS_SINCE):
        return Refusal(WireError.NOT_ENOUGH_REPLICAS, f"The transaction cannot be verified now: {error.name}.")
    return refusal
