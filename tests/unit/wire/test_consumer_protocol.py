"""Subscriptions and assignments as consumers write them: in any version, newer ones too."""

import pytest
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment as TheirAssignment
from kafka.protocol.consumer.metadata import ConsumerProtocolSubscription as TheirSubscription

from moldau.wire.codec import MalformedMessage
from moldau.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    ConsumerProtocolTopic,
    read_assignment,
    read_subscription,
    read_version,
    write_assignment,
    write_subscription,
)

OWNED = ConsumerProtocolTopic(topic="řeka", partitions=(0, 2))
SUBSCRIPTION = ConsumerProtocolSubscription(
    topics=("řeka", "potok"), user_data=b"any", owned_partitions=(OWNED,), generation_id=7, rack_id="r1"
)
ASSIGNMENT = ConsumerProtocolAssignment(assigned_partitions=(OWNED,), user_data=None)


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_keeps_what_its_version_has(version: int) -> None:
    written = write_subscription(SUBSCRIPTION, version)
    assert read_version(written) == version
    assert read_subscription(written) == ConsumerProtocolSubscription(
        topics=SUBSCRIPTION.topics,
        user_data=b"any",
        owned_partitions=(OWNED,) if version >= 1 else (),
        generation_id=7 if version >= 2 else -1,
        rack_id="r1" if version >= 3 else None,
    )


@pytest.mark.parametrize("version", range(4))
def test_kafka_python_writes_and_reads_the_same_subscription(version: int) -> None:
    written = write_subscription(SUBSCRIPTION, version)
    theirs = TheirSubscription.decode(written)
    assert theirs.topics == ["řeka", "potok"]
    assert theirs.user_data == b"any"
    assert theirs.encode(version=version) == written


@pytest.mark.parametrize("version", range(4))
def test_kafka_python_writes_and_reads_the_same_assignment(version: int) -> None:
    written = write_assignment(ASSIGNMENT, version)
    assert read_assignment(written) == ASSIGNMENT
    theirs = TheirAssignment.decode(written)
    assert [(topic.topic, topic.partitions) for topic in theirs.assigned_partitions] == [("řeka", [0, 2])]
    assert theirs.encode(version=version) == written


def test_a_newer_version_is_read_as_the_newest_known() -> None:
    future = b"\0\x09" + write_subscription(SUBSCRIPTION)[2:] + b"what a later version adds"
    assert read_version(future) == 9
    assert read_subscription(future) == SUBSCRIPTION
    assert read_assignment(b"\0\x09" + write_assignment(ASSIGNMENT)[2:] + b"more") == ASSIGNMENT
    assert write_subscription(SUBSCRIPTION, 9) == write_subscription(SUBSCRIPTION, 3)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0", write_subscription(SUBSCRIPTION)[:-1]])
def test_what_is_no_subscription_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_subscription(data)
