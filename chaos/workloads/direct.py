"""A producer without hidden attempts: one Produce request for each batch, one answer, and what it said is told.

Libraries try again by themselves, librdkafka after NOT_LEADER_OR_FOLLOWER even when told not to. The error that their
programs hear of answers the last attempt, and says nothing of those before. Here it answers the only one, so
ANSWERS can say what it proves. No producer id, acks=all, one batch at a time.
"""

import time
from dataclasses import replace

from chaos.workloads.base import Numbered
from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct.connection import Connection
from moldau.client.direct.failure import Failure, failure_of
from moldau.client.direct.metadata import NETWORK, Cluster, Leader, Topic, network_failure
from moldau.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from moldau.wire.records import Record, encode_batch

ACKS_ALL = -1
MOST = 5  # records of a batch
COMMIT_MS = 1_000  # how long a leader may wait for its followers
ANSWER_S = 2.0  # longer, so that a leader's own REQUEST_TIMED_OUT comes first
# What an error of Produce says of a batch: whether it is surely not written, and why. Any other leaves it open.
ANSWERS: dict[int, tuple[bool, str]] = {
    WireError.UNKNOWN_SERVER_ERROR: (False, "the broker does not know itself how far it came"),
    WireError.CORRUPT_MESSAGE: (True, "the batch is checked before the append"),
    WireError.UNKNOWN_TOPIC_OR_PARTITION: (False, "a topic may be deleted while an appended batch waits"),
    WireError.NOT_LEADER_OR_FOLLOWER: (False, "leadership may be lost while an appended batch waits"),
    WireError.REQUEST_TIMED_OUT: (False, "appended, and its followers did not come for it in time"),
    WireError.MESSAGE_TOO_LARGE: (True, "the batch is measured before the append"),
    WireError.NETWORK_EXCEPTION: (False, "the answer is lost, of the request nobody knows"),
    WireError.INVALID_TOPIC_EXCEPTION: (True, "whether the topic takes records is looked at before the append"),
    WireError.RECORD_LIST_TOO_LARGE: (True, "the batch is measured before the append"),
    WireError.NOT_ENOUGH_REPLICAS: (True, "the in-sync replicas are counted before the append"),
    WireError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (False, "they are counted again after it: the batch is in the log"),
    WireError.INVALID_REQUIRED_ACKS: (True, "the request is checked before any append"),
    WireError.TOPIC_AUTHORIZATION_FAILED: (True, "permission is looked at before the append"),
    WireError.INVALID_TIMESTAMP: (True, "the batch is checked before the append"),
    WireError.KAFKA_STORAGE_ERROR: (False, "the disk may fail after the append, too"),
    WireError.INVALID_RECORD: (True, "the batch is checked before the append"),
}
OPEN = (False, "")


class Direct(Numbered):
    """A record counts as sent once there is a connection to its leader.

    Who leads is asked anew after all that leaves a batch open; who refuses it for certain does lead.
    """

    def work(self) -> None:
        topic = self.setting.topic
        with Cluster(self.setting.bootstrap, client_id=self.name, timeout_s=ANSWER_S) as cluster:
            while not self.ending.is_set():
                place, many = (
                    TopicPartition(topic, self.dice.randrange(self.setting.partitions)),
                    self.dice.randint(1, MOST),
                )
                leader = connected(cluster, place)
                if isinstance(leader, Failure):
                    self.erred(f"nothing sent: {leader}", hard=not leader.retriable)
                    cluster.forget(topic)
                elif not self._sent(leader, cluster.topic(topic), place.partition, many):
                    cluster.forget(topic)
                for _ in range(many):
                    self.pause()

    def _sent(self, leader: Connection, topic: Topic | Failure, partition: int, many: int) -> bool:
        """A batch. Returns whether its outcome is known."""
        assert isinstance(topic, Topic), "it has a leader"
        values = [self.next_record(partition=partition)[1] for _ in range(many)]
        answer = send_once(leader, topic, partition, values)
        if isinstance(answer, Failure):
            surely, _ = ANSWERS.get(answer.code, OPEN)
            for value in values:
                self.not_delivered(partition, value, str(answer), surely=surely, hard=not answer.retriable)
            return surely
        for offset, value in enumerate(values, start=answer):
            self.delivered(partition, value, offset)
        return True


def connected(cluster: Cluster, place: TopicPartition) -> Connection | Failure:
    """To the partition's leader; asks whoever answers for it unless it is known."""
    leader = cluster.leader(place)
    if not isinstance(leader, Leader):
        return leader
    try:
        return cluster.broker(leader.node_id)
    except NETWORK as error:
        return network_failure(f"broker {leader.node_id}", error)


def send_once(leader: Connection, topic: Topic, partition: int, values: list[str]) -> int | Failure:
    """The first record's offset, or the error as it was answered; NETWORK_EXCEPTION and time-outs if none was."""
    now = int(time.time() * 1000)
    batch = encode_batch([Record(index, now, None, value.encode()) for index, value in enumerate(values)])
    data = TopicProduceData(
        name=topic.name,
        topic_id=topic.topic_id,
        partition_data=(PartitionProduceData(index=partition, records=batch),),
    )
    try:
        answer = leader.ask(ProduceRequest(acks=ACKS_ALL, timeout_ms=COMMIT_MS, topic_data=(data,)), ProduceResponse)
    except NETWORK as error:
        return network_failure(leader.address, error)
    [row] = answer.responses[0].partition_responses
    if not row.error_code:
        return row.base_offset
    problem = failure_of(row.error_code, "Produce")
    return replace(problem, message=row.error_message or problem.message)
