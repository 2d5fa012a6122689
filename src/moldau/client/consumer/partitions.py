"""Partitions in words, as librdkafka's Python binding has them, and of messages."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from moldau.base.ids import Offset, TopicPartition

if TYPE_CHECKING:
    from confluent_kafka import Message as KafkaMessage
    from confluent_kafka import TopicPartition as KafkaPartition

MOST_NAMES = 5


def named(partitions: Iterable[TopicPartition]) -> str:
    """Some partitions, in words."""
    names = sorted(map(str, partitions))
    more = len(names) - MOST_NAMES
    return ", ".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def plain(partitions: Iterable["KafkaPartition"]) -> list[TopicPartition]:
    return [TopicPartition(each.topic, each.partition) for each in partitions]


def for_librdkafka(partitions: Iterable[TopicPartition], offset: Offset | None = None) -> list["KafkaPartition"]:
    """Without an offset: where librdkafka finds a committed one, or else by auto.offset.reset."""
    from confluent_kafka import TopicPartition as KafkaPartition

    if offset is None:
        return [KafkaPartition(tp.topic, tp.partition) for tp in sorted(partitions)]
    return [KafkaPartition(tp.topic, tp.partition, offset) for tp in sorted(partitions)]


def neighbours(messages: "Sequence[KafkaMessage]", *, one_topic: bool) -> Iterator[int]:
    """How many messages in a row are of the same partition; mostly all of them. `one_topic`: all are of one topic."""
    from confluent_kafka import Message as KafkaMessage

    # This runs for every message: map and count need no bytecode for each.
    partitions = list(map(KafkaMessage.partition, messages))
    topics = [] if one_topic else list(map(KafkaMessage.topic, messages))
    count = len(messages)
    if count and partitions.count(partitions[0]) == count and (one_topic or topics.count(topics[0]) == count):
        return iter((count,))
    pairs = partitions if one_topic else zip(partitions, topics, strict=True)
    return (len(list(group)) for _, group in itertools.groupby(pairs))
