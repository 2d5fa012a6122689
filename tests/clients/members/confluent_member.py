"""A group member on confluent-kafka, in either group protocol: reads, commits what it read, tells both."""

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from told import Owned, leaving, may_commit, settings, tell

POLL_S = 0.1
COMMIT_EVERY = 50


class Member:
    def __init__(self) -> None:
        self.given = settings()
        self.owned = Owned()
        self.next: dict[tuple[str, int], int] = {}  # read, but not committed yet
        self.uncommitted = 0
        self.consumer = Consumer(self.configuration())
        self.cooperative = self.given.get("protocol") == "consumer" or "cooperative" in self.given["assignor"]

    def configuration(self) -> dict[str, object]:
        given = self.given
        common = {
            "bootstrap.servers": given["bootstrap"],
            "group.id": given["group"],
            "client.id": given["name"],
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "topic.metadata.refresh.interval.ms": 500,
            "reconnect.backoff.max.ms": 200,
            "fetch.wait.max.ms": 100,
            **given.get("more", {}),
        }
        if given.get("instance"):
            common["group.instance.id"] = given["instance"]
        if given.get("protocol") == "consumer":
            return {**common, "group.protocol": "consumer", "group.remote.assignor": given["assignor"] or "uniform"}
        classic = {"session.timeout.ms": given["session_ms"], "heartbeat.interval.ms": given["heartbeat_ms"]}
        return {**common, **classic, "partition.assignment.strategy": given["assignor"]}

    def run(self) -> None:
        self.consumer.subscribe(
            self.given["topics"], on_assign=self.assigned, on_revoke=self.revoked, on_lost=self.lost
        )
        while not leaving.is_set():
            message = self.consumer.poll(POLL_S)
            if message is None:
                self.commit()
            elif message.error() is not None:
                self.trouble(message.error())
            else:
                place = (message.topic(), message.partition())
                tell("read", records=[(*place, message.offset(), message.value().decode())])
                self.next[place] = message.offset() + 1
                self.uncommitted += 1
                if self.uncommitted >= COMMIT_EVERY:
                    self.commit()
        self.commit()
        self.consumer.close()
        tell("left")

    def trouble(self, error: KafkaError) -> None:
        if error.code() == KafkaError._FATAL:
            tell("fatal", error=error.str())
            raise SystemExit(3)
        if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
            tell("trouble", error=error.name(), words=error.str())

    def commit(self) -> None:
        """What was read since the last commit; a refusal is told, and those records will be read again by someone."""
        if not self.next or not may_commit.is_set():
            return
        offsets = [TopicPartition(topic, part, offset) for (topic, part), offset in self.next.items()]
        self.next, self.uncommitted = {}, 0
        try:
            answers = self.consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as refused:
            tell("refused", error=refused.args[0].name())
            return
        errors = {answer.error.name() for answer in answers if answer.error}
        if errors:
            tell("refused", error=sorted(errors)[0])
        else:
            tell("committed", offsets=[(each.topic, each.partition, each.offset) for each in offsets])

    def assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        if self.cooperative:
            consumer.incremental_assign(partitions)
            self.owned.gain((each.topic, each.partition) for each in partitions)
        else:
            consumer.assign(partitions)
            self.owned.become((each.topic, each.partition) for each in partitions)

    def revoked(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        self.commit()
        self.let_go(consumer, partitions)

    def lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        tell("lost", partitions=[(each.topic, each.partition) for each in partitions])
        if self.given.get("hold"):
            self.commit()  # too late, which is what such a member is for
        self.next, self.uncommitted = {}, 0
        self.let_go(consumer, partitions)

    def let_go(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """Tells first: as soon as librdkafka knows, others may have them."""
        if self.cooperative:
            self.owned.lose((each.topic, each.partition) for each in partitions)
            consumer.incremental_unassign(partitions)
        else:
            self.owned.become(())
            consumer.unassign()


if __name__ == "__main__":
    Member().run()
