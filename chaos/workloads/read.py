"""Readers with librdkafka: one follows a topic, one polls end and committed offsets, one reads all at the end."""

from collections import defaultdict
from collections.abc import Iterable

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from chaos.access import Access
from chaos.history import Exhausted, Fetched, Listed, Placed, Polled, Read, Recorder
from chaos.workloads.base import HASTY, PATIENCE_S, Gave, Reader, Setting, Workload
from chaos.workloads.errors import is_hard

READING = {
    **HASTY,
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 100,
    "fetch.error.backoff.ms": 50,
    "check.crcs": True,
}
ASK_S = 5.0
LAST = "last"  # the reader of everything at the end
NOBODY = "nobody"  # a group that reads and commits nothing


def reads_of(messages: Iterable[Message]) -> dict[str, list[Read]]:
    """Group messages by place, without errors."""
    found: dict[str, list[Read]] = defaultdict(list)
    for message in messages:
        if message.error() is None:
            found[f"{message.topic()}/{message.partition()}"].append(
                (int(message.offset() or 0), (message.value() or b"").decode())
            )
    return found


def errors_of(reader: Workload, messages: Iterable[Message]) -> None:
    """Record errors, including those after which a consumer goes on by itself."""
    for message in messages:
        error = message.error()
        if error is not None:
            reader.erred(error.str(), hard=is_hard(error))


class Follow(Reader):
    def work(self) -> None:
        setting = self.setting
        consumer = Consumer({**READING, **setting.access.librdkafka, "group.id": self.name})
        consumer.assign([TopicPartition(setting.topic, index, 0) for index in range(setting.partitions)])
        self.stands_at(0)
        while not self.ending.is_set():
            # At once, so that a premature read is recorded before the commit.
            messages = consumer.consume(1, 0.2)
            messages += consumer.consume(200, 0.0)
            for place, reads in reads_of(messages).items():
                self.took(int(place.rpartition("/")[2]), reads)
            errors_of(self, messages)
        consumer.close()


class Ask(Workload):
    """Polls the end offsets of topics, and the committed offsets of groups."""

    def __init__(self, name: str, setting: Setting, topics: dict[str, int], groups: dict[str, str]) -> None:
        super().__init__(name, setting)
        self._topics = topics
        self._groups = groups  # group → its topic

    def work(self) -> None:
        settings = {**READING, **self.setting.access.librdkafka}
        # End offsets are high watermarks. Pending transactional offsets are waited for (KIP-447).
        ends = Consumer({**settings, "group.id": NOBODY, "isolation.level": "read_uncommitted"})
        askers = {group: Consumer({**settings, "group.id": group}) for group in self._groups}
        while not self.ending.is_set():
            for topic, partitions in self._topics.items():
                self._ask_end(ends, topic, self.dice.randrange(partitions))
            for group, topic in self._groups.items():
                self._ask_committed(askers[group], group, topic)
            self.ending.wait(0.2)
        for asker in (ends, *askers.values()):
            asker.close()

    def _ask_end(self, asker: Consumer, topic: str, partition: int) -> None:
        since = self.setting.recorder.now()
        try:
            watermarks = asker.get_watermark_offsets(TopicPartition(topic, partition), timeout=ASK_S)
        except KafkaException as failure:
            error = failure.args[0]
            return self.erred(f"end of {topic}/{partition}: {error.str()}", hard=is_hard(error))
        if watermarks is not None:
            self.acked += 1
            self.tell(Listed, self.name, f"{topic}/{partition}", watermarks[1], since)
        return None

    def _ask_committed(self, asker: Consumer, group: str, topic: str) -> None:
        since = self.setting.recorder.now()
        wanted = [TopicPartition(topic, index) for index in range(self._topics[topic])]
        try:
            found = asker.committed(wanted, timeout=ASK_S)
        except KafkaException as failure:
            return self.erred(f"offsets of {group}: {failure.args[0].str()}", hard=is_hard(failure.args[0]))
        for each in found:
            if each.error is not None:
                self.erred(f"offset of {group} in {each}: {each.error.str()}", hard=is_hard(each.error))
            else:
                self.tell(Fetched, self.name, group, f"{topic}/{each.partition}", max(each.offset, -1), since)
        return None


def read_everything(access: Access, recorder: Recorder, topics: dict[str, int]) -> int:
    """Read every partition from its beginning to its end. Return the number of records."""
    consumer = Consumer({**READING, **access.librdkafka, "group.id": LAST, "enable.partition.eof": True})
    many, waiting = 0, set()
    for topic, partitions in topics.items():
        for index in range(partitions):
            waiting.add(f"{topic}/{index}")
            recorder.tell(Placed, LAST, f"{topic}/{index}", 0)
    consumer.assign([TopicPartition(topic, index, 0) for topic, count in topics.items() for index in range(count)])
    until = recorder.now() + PATIENCE_S
    while waiting:
        messages = consumer.consume(1000, 0.5)
        for place, reads in reads_of(messages).items():
            many += len(reads)
            recorder.tell(Polled, LAST, place, tuple(reads))
        for message in messages:
            error = message.error()
            if error is not None and error.code() == KafkaError._PARTITION_EOF:
                place = f"{message.topic()}/{message.partition()}"
                waiting.discard(place)
                recorder.tell(Exhausted, LAST, place)
        if recorder.now() > until:
            raise Gave(f"the final read did not reach the end of {sorted(waiting)}")
    consumer.close()
    return many
