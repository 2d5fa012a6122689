"""Why a broker refuses records: asked by sending them again, since librdkafka does not tell a broker's reasons."""

from collections.abc import Sequence
from typing import NamedTuple

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster import Cluster
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.wire.records import Record, encode_batch

ALL_REPLICAS = -1
TIMEOUT_MS = 10_000
BY_NAME = 12  # the last version that names topics


class RefusedRecord(NamedTuple):
    """A record that was not written, because it or another in its batch is invalid."""

    number: int  # in the order of sending, from 1
    topic_partition: TopicPartition
    record: Record


def why_refused(cluster: Cluster, refused: Sequence[RefusedRecord]) -> dict[int, str]:
    """The broker's reasons by numbers of records, which are of one partition; the first number has a reason for all.

    Empty if the broker accepts them this time: then all are written.
    """
    topic_partition = refused[0].topic_partition
    leader = cluster.partitions(topic_partition.topic)[topic_partition].leader_id
    records = [each.record._replace(offset=offset) for offset, each in enumerate(refused)]
    data = PartitionProduceData(index=topic_partition.partition, records=encode_batch(records))
    topic = TopicProduceData(name=topic_partition.topic, partition_data=(data,))
    request = ProduceRequest(acks=ALL_REPLICAS, timeout_ms=TIMEOUT_MS, topic_data=(topic,))
    answer = cluster.broker(leader).ask(request, ProduceResponse, until=BY_NAME)
    told = answer.responses[0].partition_responses[0]
    if not told.error_code:
        return {}
    general = told.error_message or WireError(told.error_code).doc
    reasons = {
        refused[each.batch_index].number: each.batch_index_error_message or general
        for each in told.record_errors
        if 0 <= each.batch_index < len(refused)
    }
    return reasons or {refused[0].number: general}
