"""Check that a checkpoint is of this query: the topics in its offsets are those that the options name."""

from collections.abc import Collection

from moldau.base.ids import TopicPartition
from moldau.base.settings import shortened
from moldau.spark.cluster import QueryFailed
from moldau.spark.offsets import Assign, ConsumerStrategy, Subscribe, SubscribePattern

REMEDY = (
    "A checkpoint belongs to one query: give this one a checkpointLocation of its own, or let it read {before} again"
)


def selects(topics: ConsumerStrategy, tp: TopicPartition) -> bool:
    """Tell whether the options name the partition, whether or not it exists."""
    match topics:
        case Subscribe():
            return tp.topic in topics.topics
        case Assign():
            return tp in topics.partitions
        case SubscribePattern():
            return topics.matches(tp.topic)


def check_same_topics(topics: ConsumerStrategy, offsets: Collection[TopicPartition], *, lenient: bool) -> None:
    """Raise QueryFailed if the query does not read all that the checkpoint has; `lenient`: or nothing of it."""
    others = [tp for tp in offsets if not selects(topics, tp)]
    if not others or (lenient and len(others) < len(offsets)):
        return
    before = _named(topics, offsets)
    sentence = f"the checkpoint is for {before}, the query reads {describe(topics)}"
    raise QueryFailed(f"{sentence}. {REMEDY.format(before=before)}")


def describe(topics: ConsumerStrategy) -> str:
    match topics:
        case Subscribe():
            return ", ".join(topics.topics)
        case Assign():
            return ", ".join(map(str, topics.partitions))
        case SubscribePattern():
            return f"topics that match {topics.pattern}"


def _named(topics: ConsumerStrategy, offsets: Collection[TopicPartition]) -> str:
    """Partitions if the query names partitions, else topics."""
    by_partition = isinstance(topics, Assign)
    names = dict.fromkeys(str(tp) if by_partition else tp.topic for tp in sorted(offsets))
    return shortened(", ".join(names))
