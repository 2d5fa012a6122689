"""The workloads by name: which clients each one is, and on which topics. To read first."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chaos.history import Noted, Recorder
from chaos.workloads import produce, programs
from chaos.workloads.base import Numbered, Reader, Setting, Workload, wait_until
from chaos.workloads.copy import Copy
from chaos.workloads.direct import Direct
from chaos.workloads.group import Member
from chaos.workloads.python_clients import Aiokafka, AiokafkaReader, KafkaPython, KafkaPythonReader
from chaos.workloads.read import ASK_S, READING, Ask, Follow

PARTITIONS = 3
MEMBERS = 2
PROTOCOLS = ("classic", "consumer")
CLIENTS = {  # the library of a workload's producer and readers; everybody else uses the first
    "confluent-kafka": ("plain", "idempotent", "copy", "group"),
    "aiokafka": ("aiokafka",),
    "kafka-python": ("kafka-python",),
    "Java": ("java",),
    "franz-go": ("go",),
    "direct": ("direct",),
}
READER_OF = "reader-of-"
GROUPS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


@dataclass
class Cast:
    """The clients of a run, and what they work on. Producers end first, then those who follow them."""

    bootstrap: str
    recorder: Recorder
    seed: int
    rate: float = 100.0
    topics: dict[str, int] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)  # group → the topic that it has to read to the end
    coordinated: list[tuple[str, str]] = field(default_factory=list)  # a coordinator's topic, and a key
    producers: list[Numbered] = field(default_factory=list)
    pairs: list[tuple[Numbered, Reader]] = field(default_factory=list)  # who reads whom to the end
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
        for producer, reader in self.pairs:
            wait_until(partial(reader.has_read, producer.ends), f"{reader.name} comes to the end")
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


def _producing(
    make: Callable[[Setting], Numbered], read: Callable[[str, Setting], Reader] = Follow
) -> Callable[[Cast, str], None]:
    """A producer on a topic of its own, and a reader who follows it."""

    def add(cast: Cast, name: str) -> None:
        setting = cast.topic(name)
        producer, reader = make(setting), read(f"{READER_OF}{name}", setting)
        cast.producers.append(producer)
        cast.followers.append(reader)
        cast.pairs.append((producer, reader))

    return add


def _copying(cast: Cast, name: str) -> None:
    """A source that a copier copies with transactions; both are read."""
    source, target = cast.topic(f"{name}-source"), cast.topic(f"{name}-target")
    cast.producers.append(produce.Produce("source", source, produce.IDEMPOTENT))
    cast.followers.append(Copy("copier", source, target.topic))
    cast.followers.append(Follow(f"{READER_OF}{target.topic}", target))
    cast.groups["copier"] = source.topic
    cast.coordinated += [(GROUPS, "copier"), (TRANSACTIONS, "copier")]


def _grouping(cast: Cast, name: str) -> None:
    """Two groups, one of the classic and one of KIP-848's protocol, and somebody to feed both."""
    setting = cast.topic(name)
    cast.producers.append(produce.Produce("feeder", setting, produce.IDEMPOTENT))
    for protocol in PROTOCOLS:
        group = f"{name}-{protocol}"
        cast.followers += [Member(f"{protocol}-{number}", setting, group, protocol) for number in range(MEMBERS)]
        cast.groups[group] = setting.topic
        cast.coordinated.append((GROUPS, group))


MISSING: dict[str, Callable[[], str]] = {"java": programs.missing_java, "go": programs.missing_go}
WORKLOADS: dict[str, tuple[str, Callable[[Cast, str], None]]] = {
    "plain": ("librdkafka, acks=all, without idempotence", _producing(produce.plain)),
    "idempotent": ("librdkafka, idempotent", _producing(produce.idempotent)),
    "aiokafka": ("aiokafka, idempotent", _producing(lambda setting: Aiokafka("aiokafka", setting), AiokafkaReader)),
    "kafka-python": (
        "kafka-python, idempotent",
        _producing(lambda setting: KafkaPython("kafka-python", setting), KafkaPythonReader),
    ),
    "java": ("Java's client, idempotent", _producing(programs.java, programs.java_reader)),
    "go": ("franz-go, idempotent", _producing(programs.go, programs.go_reader)),
    "direct": (
        "one Produce request per batch, acks=all, nothing tried again",
        _producing(lambda setting: Direct("direct", setting)),
    ),
    "copy": ("librdkafka copies a topic in transactions", _copying),
    "group": ("two groups of two members of librdkafka read and commit, by both protocols", _grouping),
}


def available() -> list[str]:
    """The workloads whose clients this machine has."""
    gone = missing()
    return [name for name in WORKLOADS if name not in gone]


def missing() -> dict[str, str]:
    """Those whose clients it has not, and why."""
    return {name: reason for name, look in MISSING.items() if (reason := look())}


def client_of(who: str) -> str:
    """The library that somebody of a history uses."""
    name = who.removeprefix(READER_OF)
    return next((client for client, names in CLIENTS.items() if name in names), next(iter(CLIENTS)))


def cast_of(names: list[str], bootstrap: str, recorder: Recorder, seed: int, rate: float) -> Cast:
    """The clients of these workloads, and one who asks for ends and committed offsets all the time."""
    cast = Cast(bootstrap, recorder, seed, rate)
    for name in names:
        WORKLOADS[name][1](cast, name)
    anywhere = Setting(bootstrap, recorder, "", 0, rate, seed)
    cast.followers.append(Ask("asker", anywhere, dict(cast.topics), dict(cast.groups)))
    return cast
