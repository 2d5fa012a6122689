"""The workloads by name: which clients each one is, and on which topics. To read first."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chaos.history import Noted, Recorder
from chaos.workloads import produce, programs
from chaos.workloads.base import Numbered, Setting, Workload, wait_until
from chaos.workloads.copy import Copy
from chaos.workloads.group import Member
from chaos.workloads.python_clients import Aiokafka, KafkaPython
from chaos.workloads.read import ASK_S, READING, Ask, Follow

PARTITIONS = 3
MEMBERS = 2
PROTOCOLS = ("classic", "consumer")


@dataclass
class Cast:
    """The clients of a run, and what they work on. Producers end first, then those who follow them."""

    bootstrap: str
    recorder: Recorder
    seed: int
    rate: float = 100.0
    topics: dict[str, int] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)  # group → the topic that it has to read to the end
    producers: list[Numbered] = field(default_factory=list)
    followers: list[Workload] = field(default_factory=list)

    def topic(self, name: str) -> Setting:
        self.topics[name] = PARTITIONS
        return Setting(self.bootstrap, self.recorder, name, PARTITIONS, self.rate, self.seed)

    @property
    def everybody(self) -> list[Workload]:
        return [*self.producers, *self.followers]

    def end(self) -> None:
        """Everybody comes to the end of what they do, in order."""
        for each in self.producers:
            each.stop()
        for each in self.producers:
            each.finish()
        for group, topic in self.groups.items():
            self._await_end(group, topic)
        for follower in self.followers:
            follower.stop()
        for follower in self.followers:
            follower.finish()

    def _await_end(self, group: str, topic: str) -> None:
        asker = Consumer({**READING, "bootstrap.servers": self.bootstrap, "group.id": group})
        places = [TopicPartition(topic, index) for index in range(self.topics[topic])]

        def at_end() -> bool:
            try:
                committed = asker.committed(places, timeout=ASK_S)
                ends = [asker.get_watermark_offsets(each, timeout=ASK_S) for each in places]
            except KafkaException as failure:
                self.recorder.tell(Noted, "end", f"{group}: {failure.args[0].str()}")
                return False
            return all(
                end is not None and max(each.offset, 0) == end[1] for each, end in zip(committed, ends, strict=True)
            )

        try:
            wait_until(at_end, f"{group} comes to the end of {topic}")
        finally:
            asker.close()


def _producing(make: Callable[[Setting], Numbered]) -> Callable[[Cast, str], None]:
    """A producer on a topic of its own, and a reader who follows it."""

    def add(cast: Cast, name: str) -> None:
        setting = cast.topic(name)
        cast.producers.append(make(setting))
        cast.followers.append(Follow(f"reader-of-{name}", setting))

    return add


def _copying(cast: Cast, name: str) -> None:
    """A source that a copier copies with transactions; both are read."""
    source, target = cast.topic(f"{name}-source"), cast.topic(f"{name}-target")
    cast.producers.append(produce.Produce("source", source, produce.IDEMPOTENT))
    cast.followers.append(Copy("copier", source, target.topic))
    cast.followers.append(Follow(f"reader-of-{target.topic}", target))
    cast.groups["copier"] = source.topic


def _grouping(cast: Cast, name: str) -> None:
    """Members of a group, of the classic or of KIP-848's protocol as the seed has it, and somebody to feed them."""
    setting, protocol = cast.topic(name), random.Random(cast.seed).choice(PROTOCOLS)
    cast.producers.append(produce.Produce("feeder", setting, produce.IDEMPOTENT))
    group = f"{name}-{protocol}"
    cast.followers += [Member(f"member-{number}", setting, group, protocol) for number in range(MEMBERS)]
    cast.groups[group] = setting.topic


MISSING: dict[str, Callable[[], str]] = {"java": programs.missing_java, "go": programs.missing_go}
WORKLOADS: dict[str, tuple[str, Callable[[Cast, str], None]]] = {
    "plain": ("librdkafka, acks=all, without idempotence", _producing(produce.plain)),
    "idempotent": ("librdkafka, idempotent", _producing(produce.idempotent)),
    "aiokafka": ("aiokafka, idempotent", _producing(lambda setting: Aiokafka("aiokafka", setting))),
    "kafka-python": ("kafka-python, idempotent", _producing(lambda setting: KafkaPython("kafka-python", setting))),
    "java": ("Java's client, idempotent", _producing(programs.java)),
    "go": ("franz-go, idempotent", _producing(programs.go)),
    "copy": ("librdkafka copies a topic in transactions", _copying),
    "group": ("two members of librdkafka read and commit", _grouping),
}


def available() -> list[str]:
    """The workloads whose clients this machine has."""
    return [name for name in WORKLOADS if name not in MISSING or not MISSING[name]()]


def cast_of(names: list[str], bootstrap: str, recorder: Recorder, seed: int, rate: float) -> Cast:
    """The clients of these workloads, and one who asks for ends and committed offsets all the time."""
    cast = Cast(bootstrap, recorder, seed, rate)
    for name in names:
        WORKLOADS[name][1](cast, name)
    anywhere = Setting(bootstrap, recorder, "", 0, rate, seed)
    cast.followers.append(Ask("asker", anywhere, dict(cast.topics), dict(cast.groups)))
    return cast
