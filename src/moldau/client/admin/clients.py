"""librdkafka's admin client, producer and consumer, built with time-outs, and their errors as this library's.

librdkafka is imported when the first client is built.
"""

import contextlib
import time
from collections.abc import Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import TYPE_CHECKING, Any, TypeVar

from moldau.client.admin.errors import (
    AdminError,
    InvalidProperty,
    LoginFailed,
    NoSuchPartition,
    NoSuchTopic,
    ProtocolMismatch,
    Refused,
    TlsFailed,
    Unreachable,
)
from moldau.client.admin.reachability import check_reachable, diagnose
from moldau.client.admin.target import CLIENT_ID, CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, Target
from moldau.client.errors import ClientError, KafkaFailure

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
    from confluent_kafka.admin import TopicMetadata

LOOK_S = 0.5  # for an answer, before a look at why there is none
LASTING = (LoginFailed, ProtocolMismatch, TlsFailed)  # librdkafka goes on trying
TOPIC_WAIT_S = 5.0  # for a topic that the broker creates on request
RETRY_S = 0.1
NO_RESPONSE = {"TRANSPORT", "DESTROY_BROKER", "TIMED_OUT", "ALL_BROKERS_DOWN", "RESOLVE", "TIMED_OUT_QUEUE"}
NO_TOPIC = {"UNKNOWN_TOPIC_OR_PART", "UNKNOWN_TOPIC_OR_PARTITION", "UNKNOWN_TOPIC"}

Result = TypeVar("Result")


class Admin:
    """librdkafka's admin client together with the cluster that it talks to."""

    def __init__(self, target: Target) -> None:
        from confluent_kafka.admin import AdminClient

        self.target = target
        self.client: AdminClient = _build(AdminClient, target, {})

    def wait(self, future: "Future[Result]", *, topic: str = "") -> Result:
        """The result of a request, or its failure. One that no retry can mend is raised before the time is over."""
        from confluent_kafka import KafkaException

        try:
            with contextlib.suppress(FutureTimeout):
                return future.result(timeout=LOOK_S)
            problem = diagnose(self.target)
            if isinstance(problem, LASTING):
                raise problem
            return future.result(timeout=REQUEST_TIMEOUT_S + CONNECT_TIMEOUT_S - LOOK_S)
        except KafkaException as error:
            raise admin_error(error, self.target, topic=topic) from error
        except FutureTimeout as error:
            late = Unreachable(self.target.bootstrap, f"no answer within {REQUEST_TIMEOUT_S:.0f} s")
            raise diagnose(self.target) or late from error


def _client_config(target: Target, own: Mapping[str, Any]) -> dict[str, Any]:
    check_reachable(target)
    quiet = {} if "debug" in target.properties else {"log_level": 0}
    return {
        "bootstrap.servers": target.bootstrap,
        "client.id": CLIENT_ID,
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
    except KafkaException as error:
        raise InvalidProperty(explain(error)) from error


def build_producer(target: Target, **own: Any) -> "Producer":
    """A producer that puts a key into the partition that Java's default partitioner chooses."""
    from confluent_kafka import Producer

    producer: Producer = _build(Producer, target, {"partitioner": "murmur2_random", **own})
    return producer


def build_consumer(target: Target, **own: Any) -> "Consumer":
    """A consumer for assigned partitions. librdkafka demands a group id; it is never used."""
    from confluent_kafka import Consumer

    settings = {
        "group.id": CLIENT_ID,
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "enable.partition.eof": True,
        "auto.offset.reset": "error",
        "allow.auto.create.topics": False,
        **own,
    }
    consumer: Consumer = _build(Consumer, target, settings)
    return consumer


def of_unused_group(error: "KafkaError") -> bool:
    """Whether librdkafka may not use the group of such a consumer, which it asks for all the same."""
    return error.name() == "GROUP_AUTHORIZATION_FAILED"


def read_topic(client: "Consumer", target: Target, topic: str) -> "TopicMetadata":
    """The metadata of a topic that exists."""
    from confluent_kafka import KafkaException

    try:
        found: TopicMetadata = client.list_topics(topic, timeout=REQUEST_TIMEOUT_S).topics[topic]
    except KafkaException as error:
        raise admin_error(error, target) from error
    if found.error is not None:
        raise admin_error(found.error, target, topic=topic)
    return found


def await_topic(producer: "Producer", target: Target, topic: str) -> "TopicMetadata":
    """The topic's metadata. A broker with auto.create.topics.enable creates it now, which takes a moment."""
    from confluent_kafka import KafkaError, KafkaException

    deadline = time.monotonic() + TOPIC_WAIT_S
    passing = (KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE)
    while True:
        try:
            found: TopicMetadata = producer.list_topics(topic, timeout=TOPIC_WAIT_S).topics[topic]
        except KafkaException as error:
            raise admin_error(error, target) from error
        if found.error is None:
            return found
        if found.error.code() not in passing or time.monotonic() > deadline:
            raise admin_error(found.error, target, topic=topic)
        time.sleep(RETRY_S)


def explain(error: "KafkaException | KafkaError", topic: str = "") -> str:
    """The error in one clause."""
    return str(_refusal(_kafka_error(error), topic))


def admin_error(error: "KafkaException | KafkaError", target: Target, *, topic: str = "") -> AdminError:
    """An error of librdkafka as one of this library."""
    kafka_error = _kafka_error(error)
    if kafka_error.name().lstrip("_") in NO_RESPONSE:
        return diagnose(target) or Unreachable(target.bootstrap, _plain(kafka_error.str()))
    return _refusal(kafka_error, topic)


def of_client(error: ClientError, topic: str) -> AdminError:
    """An error of Producer or Consumer as one of this library, where a broker or librdkafka reported it."""
    if not isinstance(error, KafkaFailure):
        return AdminError(str(error))
    return _refused(error.name, error.problem.removeprefix(f"{topic}: "), topic)


def _refusal(error: "KafkaError", topic: str) -> AdminError:
    return _refused(error.name().lstrip("_"), _plain(error.str()), topic)


def _refused(name: str, problem: str, topic: str) -> AdminError:
    if topic and name in NO_TOPIC:
        return NoSuchTopic(topic)
    if topic and name == "UNKNOWN_PARTITION":
        return NoSuchPartition(topic)
    return Refused(name, problem, topic=topic)


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
