"""TransactionalProducer: records and committed offsets in one transaction.

The first write begins a transaction; `commit` or `abort` ends it. With KIP-890 (transaction.version 2) brokers add
partitions themselves and each transaction has its own epoch; without it the producer sends AddPartitionsToTxn first.
A fenced producer (`Failure.fenced`) must be closed; after any other failure `abort` makes it usable again.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct.connection import LATEST_VERSION
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import GROUP, TRANSACTION, Cluster
from moldau.client.direct.offsets import OffsetAndMetadata, by_topic
from moldau.client.direct.produce import Producer
from moldau.client.direct.records import BATCH_BYTES, ProducerIdAndEpoch
from moldau.wire.compression import Codec
from moldau.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from moldau.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from moldau.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from moldau.wire.messages.txn_offset_commit import (
    TxnOffsetCommitPartition,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitTopic,
)

Response = TypeVar("Response", InitProducerIdResponse, AddOffsetsToTxnResponse, EndTxnResponse)

FEATURE = "transaction.version"
ADD_AS_CLIENT = 3  # the last version of AddPartitionsToTxn for producers
# The last versions of a producer without KIP-890.
PRODUCE_BEFORE, END_BEFORE, OFFSETS_BEFORE = 11, 4, 4


class TransactionalProducer(Producer):
    def __init__(
        self,
        cluster: Cluster,
        transactional_id: str,
        *,
        timeout_ms: int = 60_000,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        batch_bytes: int = BATCH_BYTES,
        request_bytes: int | None = None,
        delivery_timeout_s: float | None = None,
    ) -> None:
        super().__init__(
            cluster,
            codec=codec,
            level=level,
            batch_bytes=batch_bytes,
            request_bytes=request_bytes,
            delivery_timeout_s=delivery_timeout_s,
            transactional_id=transactional_id,
        )
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._own_epochs = False  # KIP-890
        self._added: set[TopicPartition] = set()
        self._begun = False

    def start(self) -> Failure | None:
        """InitProducerId: fences the previous producer of the transactional id and aborts its open transaction."""
        level = self.cluster.feature(FEATURE)
        if isinstance(level, Failure):
            return self._fail(level)
        self._own_epochs = level >= 2
        self._sender.until = LATEST_VERSION if self._own_epochs else PRODUCE_BEFORE
        request = InitProducerIdRequest(transactional_id=self.transactional_id, transaction_timeout_ms=self._timeout_ms)
        response = self._ask(request, InitProducerIdResponse)
        if isinstance(response, Failure):
            return self._fail(response)
        self._ended(response.producer_id, response.producer_epoch)
        return None

    def commit(self) -> Failure | None:
        """Commit. If this fails, the transaction may be committed or not; start() of the next producer completes it."""
        return self.flush() or self._end(committed=True)

    def abort(self) -> Failure | None:
        """Abort. After a failure this takes a new epoch, which aborts the open transaction too."""
        if self.failure is not None and self.failure.fenced:
            return self.failure
        if self.failure is None and self.flush() is None:
            return self._end(committed=False)
        self._sender.discard()
        self.failure = None
        return self.start()

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Failure | None:
        """Add the group's offsets, with metadata, to the transaction."""
        if self.failure is not None:
            return self.failure
        if not self._own_epochs:
            request = AddOffsetsToTxnRequest(**self._identity(), group_id=group)
            added = self._ask(request, AddOffsetsToTxnResponse)
            if isinstance(added, Failure):
                return self._fail(added)
        self._begun = True
        until = LATEST_VERSION if self._own_epochs else OFFSETS_BEFORE
        response = self.cluster.ask_coordinator(
            GROUP, group, self._offsets_request(group, offsets), TxnOffsetCommitResponse, _offsets_error, until=until
        )
        return self._fail(response) if isinstance(response, Failure) else None

    # ── within ──────────────────────────────────────────────────────────────────────────────────────────────────────

    def _before_send(self, partitions: set[TopicPartition]) -> Failure | None:
        self._begun = self._begun or bool(partitions)
        new = partitions - self._added
        if self._own_epochs or not new:
            return None
        topics = tuple(
            AddPartitionsToTxnTopic(name=name, partitions=tuple(tp.partition for tp in listed))
            for name, listed in by_topic(new)
        )
        transaction = AddPartitionsToTxnTransaction(**self._identity(), topics=topics)
        response = self.cluster.ask_coordinator(
            TRANSACTION,
            self.transactional_id,
            AddPartitionsToTxnRequest(transactions=(transaction,)),
            AddPartitionsToTxnResponse,
            _adding_error,
            until=ADD_AS_CLIENT,
        )
        if isinstance(response, Failure):
            return response
        self._added |= new
        return None

    def _end(self, *, committed: bool) -> Failure | None:
        if not self._begun:
            return None
        request = EndTxnRequest(**self._identity(), committed=committed)
        response = self._ask(request, EndTxnResponse, until=LATEST_VERSION if self._own_epochs else END_BEFORE)
        if isinstance(response, Failure):
            return self._fail(response)
        if self._own_epochs and response.producer_id >= 0:
            self._ended(response.producer_id, response.producer_epoch)
        self._begun = False
        self._added.clear()
        return None

    def _ended(self, producer_id: int, epoch: int) -> None:
        self._begun = False
        self._added.clear()
        self._set_producer_id(ProducerIdAndEpoch(producer_id, epoch, transactional=True))

    def _identity(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self._writer.producer_id,
            "producer_epoch": self._writer.epoch,
        }

    def _ask(self, request: object, response: type[Response], until: int = LATEST_VERSION) -> Response | Failure:
        return self.cluster.ask_coordinator(
            TRANSACTION, self.transactional_id, request, response, lambda reply: reply.error_code, until=until
        )

    def _offsets_request(
        self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> TxnOffsetCommitRequest:
        topics = tuple(
            TxnOffsetCommitTopic(
                name=name,
                partitions=tuple(
                    TxnOffsetCommitPartition(
                        partition_index=tp.partition,
                        committed_offset=offsets[tp].offset,
                        committed_leader_epoch=offsets[tp].leader_epoch,
                        committed_metadata=offsets[tp].metadata,
                    )
                    for tp in partitions
                ),
            )
            for name, partitions in by_topic(offsets)
        )
        return TxnOffsetCommitRequest(**self._identity(), group_id=group, topics=topics)


def _offsets_error(response: TxnOffsetCommitResponse) -> int:
    return next((part.error_code for topic in response.topics for part in topic.partitions if part.error_code), 0)


def _adding_error(response: AddPartitionsToTxnResponse) -> int:
    """The error that is the cause: OPERATION_NOT_ATTEMPTED of other partitions follows from it."""
    results = response.results_by_transaction[0].topic_results
    codes = [part.partition_error_code for topic in results for part in topic.results_by_partition]
    wrong = [code for code in codes if code]
    return next((code for code in wrong if code != WireError.OPERATION_NOT_ATTEMPTED), wrong[0] if wrong else 0)
