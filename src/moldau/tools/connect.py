"""Reaching brokers: builds librdkafka's admin, producer and consumer, with time-outs, and words what they report.

librdkafka is imported when the first client is built.
"""

import socket
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.tools.common.failure import CommandError, misused, note

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import AdminClient, TopicDescription, TopicMetadata

CONNECT_TIMEOUT_S = 5.0
REQUEST_TIMEOUT_S = 15.0
DEFAULT_PORT = 9092
TOPIC_WAIT_S = 5.0  # for a topic that the broker creates because we asked for it
ASK_AGAIN_S = 0.1

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class Target:
    """A cluster to talk to: its bootstrap addresses and the user's librdkafka properties."""

    bootstrap: str
    properties: Mapping[str, str] = field(default_factory=dict)

    def addresses(self) -> list[tuple[str, int]]:
        return [read_address(part) for part in self.bootstrap.split(",") if part.strip()]


def read_address(text: str) -> tuple[str, int]:
    """`host:port`, `host`, `[v6]:port`, each with an optional `PROTOCOL://` before it, as librdkafka takes them."""
    rest = text.strip().rpartition("://")[2]
    host, colon, port = rest.rpartition(":")
    if not colon or rest.endswith("]"):
        host, port = rest, str(DEFAULT_PORT)
    host = host.strip("[]")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise misused(f"{text!r} is not a broker address", remedy="Give --bootstrap as HOST:PORT")
    return host, int(port)


def check_reachable(target: Target) -> None:
    """Fails at once, with the reason, where librdkafka would try again until its time-out."""
    addresses = target.addresses()
    if not addresses:
        raise misused("no broker address given", remedy="Give --bootstrap as HOST:PORT")
    reason = ""
    for host, port in addresses:
        try:
            socket.create_connection((host, port), timeout=CONNECT_TIMEOUT_S).close()
        except OSError as error:
            reason = (error.strerror or str(error) or type(error).__name__).lower()
        else:
            return
    raise unreachable(target, reason)


def unreachable(target: Target, reason: str) -> CommandError:
    return CommandError(
        f"cannot reach a broker at {target.bootstrap} ({reason})",
        remedy="Is it running? Start one with: moldau up",
    )


def _client_config(target: Target, own: Mapping[str, Any]) -> dict[str, Any]:
    check_reachable(target)
    quiet = {} if "debug" in target.properties else {"log_level": 0}
    return {
        "bootstrap.servers": target.bootstrap,
        "client.id": "moldau-cli",
        "socket.connection.setup.timeout.ms": int(CONNECT_TIMEOUT_S * 1000),
        "topic.metadata.refresh.interval.ms": 30_000,
        **quiet,
        **own,
        **target.properties,
    }


def _build(factory: Any, target: Target, own: Mapping[str, Any]) -> Any:
    from confluent_kafka import KafkaException

    config = _client_config(target, own)
    try:
        return factory(config)
    except KafkaException as error:  # a property that librdkafka does not know, or a value that it refuses
        raise misused(explain(error), remedy="Check the -X properties and the command's options") from error


def build_admin(target: Target) -> "AdminClient":
    from confluent_kafka.admin import AdminClient

    admin: AdminClient = _build(AdminClient, target, {})
    return admin


def build_producer(target: Target, **own: Any) -> "Producer":
    from confluent_kafka import Producer

    # Java's default partitioner, so that a key lands where a Java producer puts it.
    producer: Producer = _build(Producer, target, {"partitioner": "murmur2_random", **own})
    return producer


def build_consumer(target: Target, **own: Any) -> "Consumer":
    """A consumer for assigned partitions: the group id is one that librdkafka asks for, and is never used."""
    from confluent_kafka import Consumer

    settings = {
        "group.id": "moldau-cli",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        **own,
    }
    consumer: Consumer = _build(Consumer, target, settings)
    return consumer


class ConnectionWatch:
    """Notices that no broker can be reached any more: the end of a bounded read, a word on stderr when following."""

    def __init__(self, target: Target, follow: bool) -> None:
        self.target = target
        self.follow = follow
        self.problem: CommandError | None = None
        self.told = False

    def on_error(self, error: "KafkaError") -> None:
        if error.name() == "_ALL_BROKERS_DOWN":
            if not self.follow:
                self.problem = unreachable(self.target, "the connection was lost")
            elif not self.told:
                note(f"Lost the connection to {self.target.bootstrap}; trying again.")
            self.told = True
        elif error.fatal() or error.name() in ("_AUTHENTICATION", "_SSL"):
            self.problem = failure(error, self.target)


def read_topic(client: "Consumer", target: Target, topic: str) -> "TopicMetadata":
    """The topic's metadata, or the failure that there is no such topic."""
    from confluent_kafka import KafkaException

    try:
        found: TopicMetadata = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise failure(error, target) from error
    if found.error is not None:
        raise failure(found.error, target, topic=topic)
    return found


def describe_topics(admin: "AdminClient", target: Target, names: list[str]) -> list["TopicDescription"]:
    """The topics of these names. Asking for their metadata instead would create those that are missing."""
    from confluent_kafka import TopicCollection

    if not names:
        return []
    futures = admin.describe_topics(TopicCollection(names), request_timeout=REQUEST_TIMEOUT_S)
    return [await_result(futures[name], target, topic=name) for name in dict.fromkeys(names)]


def await_topic(producer: "Producer", target: Target, topic: str) -> "TopicMetadata":
    """The topic's metadata. Asking for it makes a broker with automatic creation create it, which takes a moment."""
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + TOPIC_WAIT_S
    passing = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
    while True:
        try:
            found: TopicMetadata = producer.list_topics(topic, timeout=TOPIC_WAIT_S).topics[topic]
        except KafkaException as error:
            raise failure(error, target) from error
        if found.error is None:
            return found
        if found.error.code() not in passing or time.monotonic() > deadline:
            raise failure(found.error, target, topic=topic)
        time.sleep(ASK_AGAIN_S)


def await_result(future: "Future[Result]", target: Target, *, topic: str = "") -> Result:
    """The result of an admin request, or its failure in words."""
    from confluent_kafka import KafkaException

    try:
        return future.result(timeout=REQUEST_TIMEOUT_S + CONNECT_TIMEOUT_S)
    except KafkaException as error:
        raise failure(error, target, topic=topic) from error
    except FutureTimeout as error:
        raise unreachable(target, f"no answer within {REQUEST_TIMEOUT_S:.0f} s") from error


FIND_TOPIC = "See what is there with: moldau topic list; or create it with: moldau topic create {topic}"
# What to do next, by librdkafka's name of the error; {topic} is filled in.
REMEDIES = {
    "UNKNOWN_TOPIC_OR_PART": FIND_TOPIC,
    "_UNKNOWN_TOPIC": FIND_TOPIC,
    "_UNKNOWN_PARTITION": "See its partitions with: moldau topic describe {topic}",
    "TOPIC_ALREADY_EXISTS": "Add --if-not-exists to accept that",
    "TOPIC_EXCEPTION": "A name has up to 249 letters, digits, dots, underscores and hyphens",
    "INVALID_CONFIG": "Topic settings carry Kafka's names, such as retention.ms or cleanup.policy",
    "MSG_SIZE_TOO_LARGE": "Raise the topic's max.message.bytes, and message.max.bytes with -X",
    "_AUTHENTICATION": "Check the SASL settings given with -X",
    "_SSL": "Check the TLS settings given with -X",
}
# Sentences for errors whose own text says too little.
SENTENCES = {
    "UNKNOWN_TOPIC_OR_PART": "there is no topic {topic!r}",
    "_UNKNOWN_TOPIC": "there is no topic {topic!r}",
    "_UNKNOWN_PARTITION": "topic {topic!r} has no such partition",
}
NO_ANSWER = {"_TRANSPORT", "_TIMED_OUT", "_ALL_BROKERS_DOWN", "_RESOLVE", "_TIMED_OUT_QUEUE"}


def explain(error: "KafkaException | KafkaError", topic: str = "") -> str:
    """The error in one sentence."""
    kafka_error = _kafka_error(error)
    sentence = SENTENCES.get(kafka_error.name()) if topic else None
    if sentence is not None:
        return sentence.format(topic=topic)
    return f"{_plain(kafka_error.str())} ({kafka_error.name().lstrip('_')})"


def failure(error: "KafkaException | KafkaError", target: Target, *, topic: str = "") -> CommandError:
    """The error as the failure of a command, with what to do next."""
    name = _kafka_error(error).name()
    if name in NO_ANSWER:
        return unreachable(target, _plain(_kafka_error(error).str()))
    remedy = REMEDIES.get(name, "")
    return CommandError(explain(error, topic), remedy=remedy.format(topic=topic or "NAME"))


def _kafka_error(error: "KafkaException | KafkaError") -> "KafkaError":
    if isinstance(error, Exception) and error.args:
        inner: KafkaError = error.args[0]
        return inner
    return error  # type: ignore[return-value]


def _plain(text: str) -> str:
    """librdkafka's text without its own prefixes and final stop."""
    for prefix in ("Failed to get metadata: ", "Local: ", "Broker: "):
        text = text.removeprefix(prefix)
    return text.rstrip(". ")
