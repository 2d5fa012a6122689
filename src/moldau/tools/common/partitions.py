"""Partitions as people write them: `orders`, or `orders:0,1` for some of its partitions."""

from collections.abc import Iterable

from moldau.base.ids import TopicPartition
from moldau.client.admin.scope import HIGHEST_PARTITION, Scope, is_number
from moldau.tools.common.failure import misused


def read_scope(text: str, option: str) -> Scope:
    topic, colon, listed = text.partition(":")
    numbers = listed.split(",")
    if not topic or (colon and not all(is_number(number, HIGHEST_PARTITION) for number in numbers)):
        raise misused(f"{option} {text!r} is not a topic", remedy="Give NAME, or NAME:0,1 for some of its partitions")
    return Scope(topic, tuple(sorted({int(number) for number in numbers})) if colon else None)


def show_partitions(partitions: Iterable[TopicPartition]) -> str:
    """Several partitions in the form that `read_scope` reads, topic by topic."""
    topics: dict[str, list[str]] = {}
    for tp in sorted(partitions):
        topics.setdefault(tp.topic, []).append(str(tp.partition))
    return " ".join(f"{topic}:{','.join(numbers)}" for topic, numbers in topics.items())
