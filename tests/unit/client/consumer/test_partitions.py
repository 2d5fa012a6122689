"""Partitions of messages: which of them are neighbours."""

import pytest
from confluent_kafka import Message as KafkaMessage

from moldau.client.consumer.partitions import neighbours


def messages(*partitions: tuple[str, int]) -> list[KafkaMessage]:
    return [KafkaMessage(topic, partition, offset) for offset, (topic, partition) in enumerate(partitions)]


@pytest.mark.parametrize("one_topic", [True, False])
def test_neighbours_of_one_topic(one_topic: bool) -> None:
    assert list(neighbours([], one_topic=one_topic)) == []
    assert list(neighbours(messages(*[("a", 0)] * 3), one_topic=one_topic)) == [3]
    mixed = messages(("a", 0), ("a", 0), ("a", 1), ("a", 0))
    assert list(neighbours(mixed, one_topic=one_topic)) == [2, 1, 1]


def test_the_same_number_in_another_topic_is_another_partition() -> None:
    assert list(neighbours(messages(("a", 0), ("b", 0), ("b", 0), ("b", 1)), one_topic=False)) == [1, 2, 1]
