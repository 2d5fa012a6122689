"""A producer without hidden retries: one Produce request for each batch, one response, which is recorded.

Libraries retry by themselves, librdkafka after NOT_LEADER_OR_FOLLOWER even with retries disabled. The error that they
report belongs to the last attempt and says nothing about earlier ones. Here there is only one attempt, so ANSWERS can
say what its error proves. No producer id, acks=all, one batch at a time.
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
MOST = 5  # records in a batch
COMMIT_MS = 1_000  # how long a leader may wait for its followers
ANSWER_S = 2.0  # longer, so that the leader's REQUEST_TIMED_OUT comes first
# What an error of Produce says about a batch: whether it is definitely not written, and why. Others leave it open.
ANSWERS: dict[int, tuple[bool, str]] = {
    WireError.UNKNOWN_SERVER_ERROR: (False, "the broker may have failed after the append"),
    WireError.CORRUPT_MESSAGE: (True, "the batch is checked before the append"),
    WireError.UNKNOWN_TOPIC_OR_PARTITION: (False, "a topic may be deleted while an appended batch waits"),
    WireError.NOT_LEADER_OR_FOLLOWER: (False, "leadership may be lost while an appended batch waits"),
    WireError.REQUEST_TIMED_OUT: (False, "appended, but the followers did not fetch it in time"),
    WireError.MESSAGE_TOO_LARGE: (True, "the batch is measured before the append"),
    WireError.NETWORK_EXCEPTION: (False, "the response is lost, the request may have been processed"),
    WireError.INVALID_TOPIC_EXCEPTION: (True, "the topic is checked before the append"),
    WireError.RECORD_LIST_TOO_LARGE: (True, "the batch is measured before the append"),
    WireError.NOT_ENOUGH_REPLICAS: (True, "the in-sync replicas are counted before the append"),
    WireError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (
        False,
        "the batch is in the log: this is the count after the append",
    ),
    WireError.INVALID_REQUIRED_ACKS: (True, "the request is checked before any append"),
    WireError.TOPIC_AUTHORIZATION_FAILED: (True, "permissions are checked before the append"),
    WireError.INVALID_TIMESTAMP: (True, "the batch is checked before the append"),
    WireError.KAFKA_STORAGE_ERROR: (False, "the disk may also fail after the append"),
    WireError.INVALID_RECORD: (True, "the batch is checked before the append"),
}
OPEN = (False, "")


class Direct(Numbered):
    """A record counts as sent once there is a connection to its leader.

    The leader is looked up again after every error that leaves the outcome of a batch open.
    """

    def work(self) -> None:
        topic, access = self.setting.topic, self.setting.access
        with Cluster(access.bootstrap, access.direct, client_id=self.name, timeout_s=ANSWER_S) as cluster:
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
        """Send a batch. Return whether its outcome is known."""
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
    """Connect to the partition's leader; any broker is asked for it if it is unknown."""
    leader = cluster.leader(place)
    if not isinstance(leader, Leader):
        return leader
    try:
        return cluster.broker(leader.node_id)
    except NETWORK as error:
        return network_failure(f"broker {leader.node_id}", error)


def send_once(leader: Connection, topic: Topic, partition: int, values: list[str]) -> int | Failure:
    """The first record's offset, or the error of the response; NETWORK_EXCEPTION or a timeout if there was none."""
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
