"""Errors of Producer and Consumer. Each says whether trying again can help; admin errors are in `admin/errors.py`."""

from typing import TYPE_CHECKING

from moldau.base.ids import TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import KafkaError, KafkaException


class ClientError(Exception):
    """A producer or consumer could not do what it was asked.

    `retriable`: the same call may succeed later. `fatal`: this client cannot be used any more; make a new one.
    `name` is Kafka's name of the error, where a broker or librdkafka reported one.
    """

    retriable = False
    fatal = False
    name = ""


class InvalidUse(ClientError, ValueError):
    """An argument, or a combination of arguments, that makes no sense whatever the state of the cluster."""


class Closed(ClientError):
    """The client was closed."""

    fatal = True


class TimedOut(ClientError, TimeoutError):
    """No outcome within the time that the caller gave. The operation may still succeed later."""

    retriable = True


class BufferFull(TimedOut):
    """The producer's buffer had no room within `max_block`: brokers take less than is sent, or are away."""


class KafkaFailure(ClientError):
    """An error that a broker or librdkafka reported."""

    def __init__(self, name: str, problem: str, *, retriable: bool = False, fatal: bool = False) -> None:
        super().__init__(f"{problem} ({name})" if problem else name)
        self.name = name
        self.problem = problem
        self.retriable = retriable
        self.fatal = fatal


class Fenced(KafkaFailure):
    """Another client with the same transactional id, or another owner of the partition, has taken over."""


class AuthenticationFailed(KafkaFailure):
    """The cluster does not accept the credentials or the certificate."""


class NotAuthorized(KafkaFailure):
    """The principal lacks a right."""


class DeliveryFailed(ClientError):
    """Records that were sent could not be written. `errors` has the first ones, `count` is their number."""

    def __init__(self, count: int, errors: list[ClientError]) -> None:
        records = "1 record was" if count == 1 else f"{count} records were"
        super().__init__(f"{records} not delivered: {errors[0]}")
        self.count = count
        self.errors = errors
        self.retriable = all(error.retriable for error in errors)


class SerializationFailed(ClientError, ValueError):
    """A key or value that its serializer does not take."""


class DeserializationFailed(ClientError, ValueError):
    """A key or value that its deserializer cannot read; `partition` and `offset` say where it is."""

    def __init__(self, field: str, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"the {field} at offset {offset} of {partition} cannot be read: {reason}")
        self.field, self.partition, self.offset, self.reason = field, partition, offset, reason


AUTHENTICATION = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "ILLEGAL_SASL_STATE", "_SSL"}
FENCING = {"_FENCED", "INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "FENCED_INSTANCE_ID", "_STATE_FENCED"}


def client_error(error: "KafkaException | KafkaError") -> KafkaFailure:
    """An error of librdkafka as one of this library."""
    inner: KafkaError = error.args[0] if isinstance(error, Exception) and error.args else error  # type: ignore[assignment]
    name, problem = inner.name(), inner.str()
    for prefix in ("Local: ", "Broker: "):
        problem = problem.removeprefix(prefix)
    kind = KafkaFailure
    if name in FENCING:
        kind = Fenced
    elif name in AUTHENTICATION:
        kind = AuthenticationFailed
    elif name.endswith("AUTHORIZATION_FAILED"):
        kind = NotAuthorized
    return kind(name.lstrip("_"), problem.rstrip(". "), retriable=inner.retriable(), fatal=inner.fatal())
