"""Errors of Producer and Consumer. Each says whether trying again can help; admin errors are in `admin/errors.py`."""

from typing import TYPE_CHECKING

from moldau.base.errors import WireError
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
    """The producer's buffer had no room within `max_block`: brokers take less than is sent, or are away.

    `sent` is the number of records of a `send_many` that were sent before.
    """

    sent = 0


class KafkaFailure(ClientError):
    """An error that a broker or librdkafka reported.

    `abortable`: the open transaction cannot be committed; after its abort it can be tried again.
    """

    def __init__(
        self, name: str, problem: str, *, retriable: bool = False, fatal: bool = False, abortable: bool = False
    ) -> None:
        super().__init__(f"{problem} ({name})" if problem else name)
        self.name = name
        self.problem = problem
        self.retriable = retriable
        self.fatal = fatal
        self.abortable = abortable


class Fenced(KafkaFailure):
    """Another client with the same transactional id, or another owner of the partition, has taken over."""


class AuthenticationFailed(KafkaFailure):
    """The cluster does not accept the credentials or the certificate."""


class NotAuthorized(KafkaFailure):
    """The principal lacks a right."""


class RecordTooLarge(KafkaFailure):
    """A record, or a batch of them, is larger than the client or the topic allows."""


class UnknownTopicOrPartition(KafkaFailure):
    """The cluster has no such topic or partition."""


class Aborted(KafkaFailure):
    """A record was dropped before it was written: its transaction was aborted, or its producer closed."""


class DeliveryFailed(ClientError):
    """Records that were sent could not be written. `errors` has the first ones, `count` is their number."""

    def __init__(self, count: int, errors: list[ClientError]) -> None:
        records = "1 record was" if count == 1 else f"{count} records were"
        super().__init__(f"{records} not delivered: {errors[0]}")
        self.count = count
        self.errors = errors
        self.retriable = all(error.retriable for error in errors)
        self.fatal = any(error.fatal for error in errors)


class SerializationFailed(ClientError, ValueError):
    """A key or value that its serializer does not take."""


class DeserializationFailed(ClientError, ValueError):
    """A key or value that its deserializer cannot read; `partition` and `offset` say where it is."""

    def __init__(self, field: str, partition: TopicPartition, offset: int, reason: str) -> None:
        super().__init__(f"the {field} at offset {offset} of {partition} cannot be read: {reason}")
        self.field, self.partition, self.offset, self.reason = field, partition, offset, reason


KINDS: dict[str, type[KafkaFailure]] = {
    "FENCED": Fenced,
    "FENCED_INSTANCE_ID": Fenced,
    "INVALID_PRODUCER_EPOCH": Fenced,
    "PRODUCER_FENCED": Fenced,
    "AUTHENTICATION": AuthenticationFailed,
    "ILLEGAL_SASL_STATE": AuthenticationFailed,
    "SASL_AUTHENTICATION_FAILED": AuthenticationFailed,
    "SSL": AuthenticationFailed,
    "UNSUPPORTED_SASL_MECHANISM": AuthenticationFailed,
    "CLUSTER_AUTHORIZATION_FAILED": NotAuthorized,
    "DELEGATION_TOKEN_AUTHORIZATION_FAILED": NotAuthorized,
    "GROUP_AUTHORIZATION_FAILED": NotAuthorized,
    "TOPIC_AUTHORIZATION_FAILED": NotAuthorized,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": NotAuthorized,
    "MESSAGE_TOO_LARGE": RecordTooLarge,
    "RECORD_LIST_TOO_LARGE": RecordTooLarge,
    "UNKNOWN_PARTITION": UnknownTopicOrPartition,
    "UNKNOWN_TOPIC": UnknownTopicOrPartition,
    "UNKNOWN_TOPIC_ID": UnknownTopicOrPartition,
    "UNKNOWN_TOPIC_OR_PARTITION": UnknownTopicOrPartition,
    "PURGE_INFLIGHT": Aborted,
    "PURGE_QUEUE": Aborted,
}
# Errors of librdkafka's own that pass; the broker's are in the table of protocol errors.
PASSING = {
    "ALL_BROKERS_DOWN",
    "DESTROY_BROKER",
    "MSG_TIMED_OUT",
    "NOENT",
    "OUTDATED",
    "PURGE_INFLIGHT",
    "PURGE_QUEUE",
    "QUEUE_FULL",
    "RESOLVE",
    "RETRY",
    "TIMED_OUT",
    "TIMED_OUT_QUEUE",
    "TRANSPORT",
    "UNKNOWN_TOPIC",
    "WAIT_COORD",
}
PROBLEMS = {
    "MSG_TIMED_OUT": "not delivered within the delivery timeout",
    "PURGE_INFLIGHT": "dropped before it was acknowledged: the transaction was aborted, or the producer closed",
    "PURGE_QUEUE": "dropped before it was sent: the transaction was aborted, or the producer closed",
}
PREFIXES = ("Unable to produce message: ", "Failed to get metadata: ", "Local: ", "Broker: ")


def client_error(error: "KafkaException | KafkaError", about: str = "") -> KafkaFailure:
    """An error of librdkafka as one of this library; `about` says what it happened to."""
    inner: KafkaError = error.args[0] if isinstance(error, Exception) and error.args else error  # type: ignore[assignment]
    name, retriable = _identify(inner)
    problem = PROBLEMS.get(name) or inner.str()
    for prefix in PREFIXES:
        problem = problem.removeprefix(prefix)
    problem = problem.rstrip(". ")
    abortable = inner.txn_requires_abort()
    # The epoch of a transaction that timed out is stale too; an abort makes it good again.
    kind = KafkaFailure if abortable and KINDS.get(name) is Fenced else KINDS.get(name, KafkaFailure)
    fatal = inner.fatal() or name == "FATAL"  # what follows a fatal error has this name
    return kind(
        name,
        f"{about}: {problem}" if about else problem,
        retriable=(retriable or inner.retriable() or abortable) and not fatal,
        fatal=fatal,
        abortable=abortable,
    )


def _identify(error: "KafkaError") -> tuple[str, bool]:
    """Kafka's name of the error, and whether it passes."""
    if error.code() > 0:
        try:
            known = WireError(error.code())
        except ValueError:  # an API that Moldau does not have
            return error.name(), False
        return known.name, known.retriable
    name = error.name().lstrip("_")
    return name, name in PASSING
