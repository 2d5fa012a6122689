"""Errors of librdkafka as those of the client: names, kinds, whether to try again."""

import pytest
from confluent_kafka import KafkaError, KafkaException

from moldau.client.errors import (
    Aborted,
    AuthenticationFailed,
    DeliveryFailed,
    Fenced,
    KafkaFailure,
    NotAuthorized,
    RecordTooLarge,
    TimedOut,
    UnknownTopicOrPartition,
    client_error,
)


@pytest.mark.parametrize(
    ("code", "kind", "name", "retriable"),
    [
        (KafkaError.NOT_ENOUGH_REPLICAS, KafkaFailure, "NOT_ENOUGH_REPLICAS", True),
        (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaFailure, "NOT_LEADER_OR_FOLLOWER", True),
        (KafkaError.INVALID_RECORD, KafkaFailure, "INVALID_RECORD", False),
        (KafkaError.MSG_SIZE_TOO_LARGE, RecordTooLarge, "MESSAGE_TOO_LARGE", False),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, UnknownTopicOrPartition, "UNKNOWN_TOPIC_OR_PARTITION", True),
        (KafkaError._UNKNOWN_PARTITION, UnknownTopicOrPartition, "UNKNOWN_PARTITION", False),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, NotAuthorized, "TOPIC_AUTHORIZATION_FAILED", False),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, NotAuthorized, "GROUP_AUTHORIZATION_FAILED", False),
        (KafkaError._AUTHENTICATION, AuthenticationFailed, "AUTHENTICATION", False),
        (KafkaError.SASL_AUTHENTICATION_FAILED, AuthenticationFailed, "SASL_AUTHENTICATION_FAILED", False),
        (KafkaError._FENCED, Fenced, "FENCED", False),
        (KafkaError.PRODUCER_FENCED, Fenced, "PRODUCER_FENCED", False),
        (KafkaError._MSG_TIMED_OUT, KafkaFailure, "MSG_TIMED_OUT", True),
        (KafkaError._TRANSPORT, KafkaFailure, "TRANSPORT", True),
        (KafkaError._PURGE_QUEUE, Aborted, "PURGE_QUEUE", True),
        (KafkaError.STREAMS_INVALID_TOPOLOGY, KafkaFailure, "STREAMS_INVALID_TOPOLOGY", False),
    ],
)
def test_kinds_names_and_retries(code: int, kind: type[KafkaFailure], name: str, retriable: bool) -> None:
    found = client_error(KafkaException(KafkaError(code)))
    assert (type(found), found.name, found.retriable, found.fatal) == (kind, name, retriable, False)
    assert str(found).endswith(f"({name})")


def test_a_fatal_error_is_not_retriable() -> None:
    found = client_error(KafkaError(KafkaError._FENCED, "Local: gone.", fatal=True), "orders")
    assert (found.fatal, found.retriable, str(found)) == (True, False, "orders: gone (FENCED)")


def test_a_transaction_that_must_be_aborted_can_be_tried_again() -> None:
    found = client_error(KafkaError(KafkaError.INVALID_PRODUCER_EPOCH, "Broker: stale", txn_requires_abort=True))
    assert (type(found), found.abortable, found.retriable) == (KafkaFailure, True, True)


def test_many_failures_are_retriable_if_all_of_them_are() -> None:
    passing, lasting = KafkaFailure("A", "a", retriable=True), KafkaFailure("B", "b")
    assert DeliveryFailed(2, [passing, TimedOut("late")]).retriable
    assert not DeliveryFailed(2, [passing, lasting]).retriable
    assert str(DeliveryFailed(2, [passing])) == "2 records were not delivered: a (A)"
    assert str(DeliveryFailed(1, [passing])) == "1 record was not delivered: a (A)"
