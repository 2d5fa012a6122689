"""A group member on Moldau's own Consumer, in either group protocol: reads, tells what it read and owns."""

import signal
import time
from collections.abc import Mapping, Sequence

from told import Owned, settings, tell

from moldau.base.ids import Offset, TopicPartition
from moldau.client.consumer.consumer import Consumer
from moldau.client.consumer.rebalances import RebalanceListener
from moldau.client.interceptors import ConsumerInterceptor


class Listener(RebalanceListener):
    def __init__(self) -> None:
        self.owned = Owned()

    def on_assigned(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned.gain(partitions)

    def on_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        self.owned.lose(partitions)

    def on_lost(self, partitions: Sequence[TopicPartition]) -> None:
        tell("lost", partitions=list(partitions))
        self.owned.lose(partitions)


class Commits(ConsumerInterceptor):
    def on_commit(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        tell("committed", offsets=[(*tp, offset) for tp, offset in offsets.items()])


def run() -> None:
    given = settings()
    properties = {
        "topic.metadata.refresh.interval.ms": 500,
        "reconnect.backoff.max.ms": 200,
        **given.get("more", {}),
    }
    if given["protocol"] == "classic":
        properties |= {
            "session.timeout.ms": given["session_ms"],
            "heartbeat.interval.ms": given["heartbeat_ms"],
            "partition.assignment.strategy": given["assignor"],
        }
    consumer = Consumer(
        given["bootstrap"],
        *given["topics"],
        group=given["group"],
        value=str,
        protocol=given["protocol"],
        commit_interval=0.2,
        listener=Listener(),
        interceptors=[Commits()],
        instance_id=given.get("instance"),
        client_id=given["name"],
        properties=properties,
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    with consumer:
        for message in consumer:
            time.sleep(given.get("body_s", 0))
            tell("read", records=[(message.topic, message.partition, message.offset, message.value)])
    tell("left")


if __name__ == "__main__":
    run()
