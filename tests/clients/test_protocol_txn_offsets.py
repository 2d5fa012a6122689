"""Offsets in transactions byte by byte: unstable until the end, kept or dropped by it, refused to who is replaced."""

import uuid
from typing import Any, NamedTuple

from kafka.protocol.consumer import OffsetFetchRequest
from kafka.protocol.metadata import FindCoordinatorRequest
from kafka.protocol.producer import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    TxnOffsetCommitRequest,
)

from support.brokers.processes import CreateTopic
from support.clients.raw import NO_TOPIC, RawClient

NONE, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, UNKNOWN_MEMBER_ID = 0, 47, 48, 25
UNSTABLE_OFFSET_COMMIT, TRANSACTION_ABORTABLE = 88, 120
NOT_READY = {14, 15, 16, 51}  # loading, not available, not coordinator, the transaction before is still being ended


class Producer(NamedTuple):
    id: int
    epoch: int


class Copier:
    """A transactional producer and the group whose offsets it commits."""

    def __init__(self, raw: RawClient, topic: str) -> None:
        self.raw = raw
        self.topic = topic
        self.group = f"raw-{uuid.uuid4().hex[:12]}"
        self.transactional_id = f"txn-{self.group}"

    def _ask(self, request: Any, version: int) -> Any:
        """Until the coordinators are ready and the transaction before has ended."""
        while True:
            answer = self.raw.ask(request, version)
            error = answer.error_code if hasattr(answer, "error_code") else answer.topics[0].partitions[0].error_code
            if error not in NOT_READY:
                return answer
            for kind, key in ((0, self.group), (1, self.transactional_id)):
                self.raw.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[key]), 4)

    def begin(self) -> Producer:
        request = InitProducerIdRequest(
            transactional_id=self.transactional_id, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
        )
        answer = self._ask(request, 5)
        assert answer.error_code == NONE
        return Producer(answer.producer_id, answer.producer_epoch)

    def commit(self, producer: Producer, offset: int, version: int = 5, generation: int = -1, member: str = "") -> int:
        item = TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        partition = item.TxnOffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
        )
        request = TxnOffsetCommitRequest(
            transactional_id=self.transactional_id,
            group_id=self.group,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            generation_id=generation,
            member_id=member,
            group_instance_id=None,
            topics=[item(name=self.topic, partitions=[partition])],
        )
        error: int = self._ask(request, version).topics[0].partitions[0].error_code
        return error

    def add_offsets(self, producer: Producer) -> int:
        request = AddOffsetsToTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            group_id=self.group,
        )
        error: int = self._ask(request, 3).error_code
        return error

    def end(self, producer: Producer, committed: bool) -> Producer:
        request = EndTxnRequest(
            transactional_id=self.transactional_id,
            producer_id=producer.id,
            producer_epoch=producer.epoch,
            committed=committed,
        )
        answer = self._ask(request, 5)
        assert answer.error_code == NONE
        return Producer(answer.producer_id, answer.producer_epoch)

    def fetch(self, stable: bool) -> tuple[int, int]:
        """The offset, and the error."""
        asked = OffsetFetchRequest.OffsetFetchRequestGroup
        topic = asked.OffsetFetchRequestTopics(name=self.topic, topic_id=NO_TOPIC, partition_indexes=[0])
        group = asked(group_id=self.group, member_id=None, member_epoch=-1, topics=[topic])
        answer = self.raw.ask(OffsetFetchRequest(groups=[group], require_stable=stable), 9).groups[0]
        found = answer.topics[0].partitions[0]
        return found.committed_offset, found.error_code

    def settled(self) -> int:
        """The offset once no transaction may change it any more."""
        while True:
            offset, error = self.fetch(stable=True)
            if error != UNSTABLE_OFFSET_COMMIT:
                return offset


def test_offsets_count_when_their_transaction_commits(raw: RawClient, create_topic: CreateTopic) -> None:
    copier = Copier(raw, create_topic())
    producer = copier.begin()
    assert copier.commit(producer, 7) == NONE
    assert copier.fetch(stable=True) == (-1, UNSTABLE_OFFSET_COMMIT)
    assert copier.fetch(stable=False) == (-1, NONE)
    producer = copier.end(producer, committed=True)
    assert copier.settled() == 7
    assert copier.commit(producer, 8) == NONE
    assert copier.fetch(stable=False) == (7, NONE)
    copier.end(producer, committed=False)
    assert copier.settled() == 7


def test_before_version_5_the_group_is_added_first(raw: RawClient, create_topic: CreateTopic) -> None:
    copier = Copier(raw, create_topic())
    producer = copier.begin()
    assert copier.commit(producer, 7, version=3) == INVALID_TXN_STATE
    assert copier.commit(producer, 7, version=4) == TRANSACTION_ABORTABLE
    assert copier.add_offsets(producer) == NONE
    assert copier.commit(producer, 7, version=3, generation=5, member="nobody") in (22, UNKNOWN_MEMBER_ID)
    assert copier.commit(producer, 7, version=3) == NONE
    copier.begin()  # which aborts what is open
    assert copier.settled() == -1


def test_a_producer_that_was_replaced_commits_nothing(raw: RawClient, create_topic: CreateTopic) -> None:
    copier = Copier(raw, create_topic())
    first = copier.begin()
    second = copier.end(first, committed=True) if copier.commit(first, 7) == NONE else first
    assert second.epoch > first.epoch
    for version in (3, 4, 5):
        assert copier.commit(first, 8, version) == INVALID_PRODUCER_EPOCH
    third = copier.begin()
    for version in (3, 4, 5):
        assert copier.commit(second, 8, version) == INVALID_PRODUCER_EPOCH
    assert copier.settled() == 7
    assert copier.commit(third, 9) == NONE
    copier.end(third, committed=True)
    assert copier.settled() == 9
