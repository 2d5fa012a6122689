"""The workloads by name: their clients and topics. Start reading here."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from confluent_kafka import Consumer, KafkaException, TopicPartition

from chaos.access import Access
from chaos.history import Noted, Recorder
from chaos.workloads import go_program, produce, programs
from chaos.workloads.base import Numbered, Reader, Setting, Workload, wait_until
from chaos.workloads.copy import Copy
from chaos.workloads.direct import Direct
from chaos.workloads.group import Member
from chaos.workloads.python_clients import Aiokafka, AiokafkaReader, KafkaPython, KafkaPythonReader
from chaos.workloads.read import ASK_S, LAST, NOBODY, READING, Ask, Follow

PARTITIONS = 3
MEMBERS = 2
PROTOCOLS = ("classic", "consumer")
CLIENTS = {  # the library of a workload's producer and readers; all other clients use the first
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
    """The clients of a run and their topics. Producers finish first, then their followers."""

    access: Access
    recorder: Recorder
    seed: int
    rate: float = 100.0
    topics: dict[str, int] = field(default_factory=dict)
    groups: dict[str, str] = field(default_factory=dict)  # group → the topic that it reads to the end
    coordinated: list[tuple[str, str]] = field(default_factory=list)  # (coordinator's topic, group or transactional id)
    producers: list[Numbered] = field(default_factory=list)
    pairs: list[tuple[Numbered, Reader]] = field(default_factory=list)  # producer, and the reader of its records
    followers: list[Workload] = field(default_factory=list)

    def topic(self, name: str) -> Setting:
        self.topics[name] = PARTITIONS
        return Setting(self.access, self.recorder, name, PARTITIONS, self.rate, self.seed)

    @property
    def clients(self) -> list[Workload]:
        return [*self.producers, *self.followers]

    @property
    def all_groups(self) -> list[str]:
        """The groups of all clients; most readers are alone in theirs, which has their name."""
        return sorted({*self.groups, *(each.name for each in self.followers), NOBODY, LAST})

    @property
    def transactional_ids(self) -> list[str]:
        return [key for topic, key in self.coordinated if topic == TRANSACTIONS]

    def end(self) -> None:
        """Let all clients finish, in order."""
        for each in self.producers:
            each.stop()
        for each in self.producers:
            each.finish()
        for group, topic in self.groups.items():
            self._await_end(group, topic)
        for producer, reader in self.pairs:
            wait_until(partial(reader.has_read, producer.ends), f"{reader.name} reaches the end")
        for follower in self.followers:
            follower.stop()
        for follower in self.followers:
            follower.finish()

    def _await_end(self, group: str, topic: str) -> None:
        asker = Consumer({**READING, **self.access.librdkafka, "group.id": group})
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
            wait_until(at_end, f"{group} reaches the end of {topic}")
        finally:
            asker.close()


def _producing(
    make: Callable[[Setting], Numbered], read: Callable[[str, Setting], Reader] = Follow
) -> Callable[[Cast, str], None]:
    """A producer with its own topic, and a reader that follows it."""

    def add(cast: Cast, name: str) -> None:
        setting = cast.topic(name)
        producer, reader = make(setting), read(f"{READER_OF}{name}", setting)
        cast.producers.append(producer)
        cast.followers.append(reader)
        cast.pairs.append((producer, reader))

    return add


def _copying(cast: Cast, name: str) -> None:
    """A topic that a copier copies in transactions; source and target are read."""
    source, target = cast.topic(f"{name}-source"), cast.topic(f"{name}-target")
    cast.producers.append(produce.Produce("source", source, produce.IDEMPOTENT))
    cast.followers.append(Copy("copier", source, target.topic))
    cast.followers.append(Follow(f"{READER_OF}{target.topic}", target))
    cast.groups["copier"] = source.topic
    cast.coordinated += [(GROUPS, "copier"), (TRANSACTIONS, "copier")]


def _grouping(cast: Cast, name: str) -> None:
    """Two groups, one per group protocol (classic and KIP-848), and a producer for both."""
    setting = cast.topic(name)
    cast.producers.append(produce.Produce("feeder", setting, produce.IDEMPOTENT))
    for protocol in PROTOCOLS:
        group = f"{name}-{protocol}"
        cast.followers += [Member(f"{protocol}-{number}", setting, group, protocol) for number in range(MEMBERS)]
        cast.groups[group] = setting.topic
        cast.coordinated.append((GROUPS, group))


MISSING: dict[str, Callable[[], str]] = {"java": programs.missing_java, "go": go_program.missing}
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
        "one Produce request per batch, acks=all, no retries",
        _producing(lambda setting: Direct("direct", setting)),
    ),
    "copy": ("librdkafka copies a topic in transactions", _copying),
    "group": ("two groups of two librdkafka members each, one per group protocol", _grouping),
}


def available() -> list[str]:
    """Workloads with clients that are installed here."""
    gone = missing()
    return [name for name in WORKLOADS if name not in gone]


def missing() -> dict[str, str]:
    """Workloads without, and why."""
    return {name: reason for name, look in MISSING.items() if (reason := look())}


def client_of(client: str) -> str:
    """The library of a client in a history."""
    name = client.removeprefix(READER_OF)
    return next((client for client, names in CLIENTS.items() if name in names), next(iter(CLIENTS)))


def cast_of(names: list[str], access: Access, recorder: Recorder, seed: int, rate: float) -> Cast:
    """The clients of these workloads, and one that polls end and committed offsets."""
    cast = Cast(access, recorder, seed, rate)
    for name in names:
        WORKLOADS[name][1](cast, name)
    anywhere = Setting(access, recorder, "", 0, rate, seed)
    cast.followers.append(Ask("asker", anywhere, dict(cast.topics), dict(cast.groups)))
    return cast
