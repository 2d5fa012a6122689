"""Members of a consumer group with librdkafka: read, commit, start at the committed offsets."""

from functools import partial

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chaos.history import Committed, Committing, Fetched, Placed, Polled
from chaos.workloads.abandoned import Stuck, within
from chaos.workloads.base import Setting, Workload
from chaos.workloads.errors import is_hard
from chaos.workloads.read import READING, errors_of, reads_of

OFFSETS_S = 20.0
COMMIT_S = 20.0
POLLED_MS = 40_000  # a member that is stuck is out of its group then


class Member(Workload):
    """One of several members. It fetches the committed offsets itself when it gets partitions, and records them."""

    def __init__(self, name: str, setting: Setting, group: str, protocol: str) -> None:
        super().__init__(name, setting)
        self._group = group
        self._protocol = protocol
        settings = {**READING, **setting.access.librdkafka, "group.id": group, "group.protocol": protocol}
        settings["max.poll.interval.ms"] = POLLED_MS
        if protocol == "classic":
            settings |= {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 500}
        self._settings = settings

    def work(self) -> None:
        consumer = self._joining()
        while not self.ending.is_set():
            try:
                messages = consumer.consume(100, 0.2)
                errors_of(self, messages)
                self._take(consumer, reads_of(messages))
            except KafkaException as failure:  # in the callback: the committed offsets could not be fetched
                self.erred(f"rejoins: {failure}", hard=is_hard(failure.args[0]))
                consumer.close()
                consumer = self._joining()
            except Stuck as failure:  # its session expires, as close() would wait for the commit too
                self.erred(f"rejoins: {failure}", hard=False)
                consumer = self._joining()
        consumer.close()

    def _joining(self) -> Consumer:
        consumer = Consumer(self._settings)
        consumer.subscribe([self.setting.topic], on_assign=self._assigned)
        return consumer

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        since = self.setting.recorder.now()
        begin = []
        for each in consumer.committed(partitions, timeout=OFFSETS_S):
            if each.error is not None:
                raise KafkaException(each.error)
            place = f"{each.topic}/{each.partition}"
            self.tell(Fetched, self.name, self._group, place, max(each.offset, -1), since)
            begin.append(TopicPartition(each.topic, each.partition, max(each.offset, 0)))
            self.tell(Placed, self.name, place, max(each.offset, 0))
        if self._protocol == "consumer":  # KIP-848: the assignment grows; partitions that stay keep their positions
            consumer.incremental_assign(begin)
        else:
            consumer.assign(begin)

    def _take(self, consumer: Consumer, found: dict[str, list[tuple[int, str]]]) -> None:
        offsets = []
        for place, reads in found.items():
            self.acked += len(reads)
            self.tell(Polled, self.name, place, tuple(reads))
            topic, _, partition = place.rpartition("/")
            offsets.append(TopicPartition(topic, int(partition), reads[-1][0] + 1))
            self.tell(Committing, self.name, self._group, place, reads[-1][0] + 1)
        if not offsets:
            return None
        try:  # the call has no timeout; librdkafka 2.16 may lose a commit whose coordinator died
            commit = partial(consumer.commit, offsets=offsets, asynchronous=False)
            done: list[TopicPartition] | None = within(COMMIT_S, commit, self.note)
        except KafkaException as failure:
            return self.erred(f"commit: {failure.args[0].str()}", hard=is_hard(failure.args[0]))
        for each in done or ():
            if each.error is not None:
                self.erred(f"commit of {each}: {each.error.str()}", hard=is_hard(each.error))
            else:
                self.tell(Committed, self.name, self._group, f"{each.topic}/{each.partition}", each.offset)
        return None
