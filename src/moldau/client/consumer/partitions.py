"""Partitions in words, and as librdkafka's Python binding has them."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from moldau.base.ids import Offset, TopicPartition

if TYPE_CHECKING:
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
