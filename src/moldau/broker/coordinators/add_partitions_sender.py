"""AddPartitionsSender: asks another broker's transaction coordinator to add or verify partitions (KIP-890)."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import NamedTuple

from moldau.base.errors import WireError
from moldau.base.ids import Epoch, TopicPartition
from moldau.base.later import Later
from moldau.broker.coordinators.batch_sender import REQUEST_TIMEOUT_MS, BatchSender, Errors
from moldau.broker.peers import Peers
from moldau.metadata.image import ClusterImage
from moldau.net.peer import Peer
from moldau.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

PURPOSE = "add-partitions"
VERSION = 5

PartitionErrors = Mapping[TopicPartition, WireError]


class AddOrVerify(NamedTuple):
    """A request to the coordinator of a transactional id: are these partitions in its open transaction?"""

    transactional_id: str
    producer_id: int
    producer_epoch: Epoch
    partitions: Sequence[TopicPartition]
    adds: bool  # add the partitions that are not in the transaction


class AddPartitionsItem(NamedTuple):
    transaction: AddPartitionsToTxnTransaction
    partitions: Sequence[TopicPartition]
    reply: Later[PartitionErrors]


class AddPartitionsSender:
    def __init__(self, peers: Peers) -> None:
        self._sender = BatchSender(peers, PURPOSE, _send, _complete)

    def add_or_verify(self, broker_id: int, request: AddOrVerify) -> Later[PartitionErrors]:
        """The coordinator's result for each partition; NETWORK_EXCEPTION: unknown."""
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=request.transactional_id,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            verify_only=not request.adds,
            topics=tuple(
                AddPartitionsToTxnTopic(name=name, partitions=tuple(index for _, index in found))
                for name, found in groupby(sorted(request.partitions), key=lambda each: each.topic)
            ),
        )
        item = AddPartitionsItem(transaction, request.partitions, Later())
        self._sender.send(broker_id, item)
        return item.reply

    def follow(self, old: ClusterImage, new: ClusterImage) -> None:
        self._sender.follow(old, new)

    async def stop(self) -> None:
        await self._sender.stop()


async def _send(peer: Peer, items: list[AddPartitionsItem]) -> Errors:
    request = AddPartitionsToTxnRequest(transactions=tuple(item.transaction for item in items))
    response: AddPartitionsToTxnResponse = await peer.ask(request, VERSION, REQUEST_TIMEOUT_MS)
    return {
        (item.reply, topic.name, result.partition_index): WireError(result.partition_error_code)
        for item, answer in zip(items, response.results_by_transaction, strict=True)  # in the order of the request
        for topic in answer.topic_results
        for result in topic.results_by_partition
    }


def _complete(item: AddPartitionsItem, errors: Errors) -> None:
    unknown = WireError.NETWORK_EXCEPTION
    item.reply.resolve({each: errors.get((item.reply, *each), unknown) for each in item.partitions})
