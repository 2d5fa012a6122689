"""A group member on kafka-python: reads, commits what it read, tells both."""

from kafka import ConsumerRebalanceListener, KafkaConsumer, TopicPartition
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
from kafka.errors import KafkaError
from kafka.structs import OffsetAndMetadata
from told import Owned, consumer_settings, leaving, may_commit, settings, tell

POLL_MS = 1000  # a poll that ends in the middle of a rebalance forgets its outcome: kafka-python 3.0.12
ASSIGNORS = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


class Listener(ConsumerRebalanceListener):
    """Runs on the client's own loop, where nothing may block: commits happen between polls instead."""

    def __init__(self, cooperative: bool) -> None:
        self.cooperative = cooperative
        self.owned = Owned()

    def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        self.owned.lose(tuple(each) for each in revoked)

    def on_partitions_lost(self, lost: set[TopicPartition]) -> None:
        tell("lost", partitions=sorted(lost))
        self.owned.lose(tuple(each) for each in lost)

    def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        change = self.owned.gain if self.cooperative else self.owned.become
        change(tuple(each) for each in assigned)


def commit(consumer: KafkaConsumer, offsets: dict[TopicPartition, int]) -> None:
    try:
        consumer.commit({place: OffsetAndMetadata(offset, "", -1) for place, offset in offsets.items()})
    except KafkaError as refused:
        tell("refused", error=type(refused).__name__)
    else:
        tell("committed", offsets=[(*place, offset) for place, offset in offsets.items()])


def main() -> None:
    given = settings()
    consumer = KafkaConsumer(**consumer_settings(given, ASSIGNORS), reconnect_backoff_max_ms=200)
    consumer.subscribe(given["topics"], listener=Listener("cooperative" in given["assignor"]))
    following: dict[TopicPartition, int] = {}  # read, but not committed yet
    while not leaving.is_set():
        if following and may_commit.is_set():
            commit(consumer, following)
            following = {}
        try:
            found = consumer.poll(timeout_ms=POLL_MS)
        except KafkaError as error:
            tell("fatal" if not error.retriable else "trouble", error=type(error).__name__)
            continue
        for place, messages in found.items():
            tell("read", records=[(*place, message.offset, message.value.decode()) for message in messages])
            following[place] = messages[-1].offset + 1
    consumer.close()
    tell("left")


if __name__ == "__main__":
    main()
