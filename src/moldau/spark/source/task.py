"""Read task: fetches a range of offsets and yields Arrow RecordBatches.

While one response is decoded, the next is being fetched (`client.direct.fetch`); at most two are in memory.
"""

from collections.abc import Iterator
from typing import Any

from pyarrow import ArrowInvalid

from moldau.base.errors import WireError
from moldau.base.ids import TopicPartition
from moldau.client.direct.arrow import record_batches
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import INCONSISTENT_TOPIC_ID, FetchedBatches, FetchSizes, read_range
from moldau.client.direct.metadata import Cluster, Topic
from moldau.client.direct.offsets import EARLIEST, READ_COMMITTED, READ_UNCOMMITTED, list_offsets
from moldau.spark.cluster import QueryFailed, open_cluster, unwrap
from moldau.spark.options import Fetching, ReadOptions
from moldau.spark.source.data_loss import DataLoss
from moldau.spark.source.plan import OffsetRange, ReadTask
from moldau.spark.workers import freeze_imports
from moldau.wire.compression import CorruptRecords

GONE = frozenset({WireError.UNKNOWN_TOPIC_OR_PARTITION, WireError.UNKNOWN_TOPIC_ID, INCONSISTENT_TOPIC_ID})


def read_task(options: ReadOptions, task: ReadTask) -> Iterator[Any]:
    """The records as pyarrow RecordBatches with the columns of Spark's Kafka source; dead letters need headers."""
    freeze_imports()
    with open_cluster(options.connection, timeout_ms=options.poll_timeout_ms) as cluster:
        loss = DataLoss(options.fail_on_data_loss)
        tp = TopicPartition(task.range.topic, task.range.partition)
        gone = _deletion(cluster, task)
        if gone is not None:
            loss.report(gone)
            return
        headers = options.include_headers or options.dead_letters is not None
        for position, chunk in _chunks(cluster, task.range, options.fetching, loss):
            try:
                yield from record_batches(chunk.batches, tp, start=position, end=task.range.end, headers=headers)
            except (CorruptRecords, ArrowInvalid) as broken:  # ArrowInvalid: a timestamp out of Spark's range
                raise QueryFailed(f"{task.range} could not be read: {broken}") from broken


def _deletion(cluster: Cluster, task: ReadTask) -> str | None:
    """A replayed batch may name a topic that was deleted or recreated since."""
    topic = cluster.topic(task.range.topic)
    if isinstance(topic, Failure) and topic.code == WireError.UNKNOWN_TOPIC_OR_PARTITION:
        return f"The topic {task.range.topic} was deleted"
    topic = unwrap(topic)
    assert isinstance(topic, Topic)
    if task.range.partition not in topic.leaders:
        return f"Partition {task.range.topic}-{task.range.partition} was deleted"
    if task.topic_id is not None and topic.topic_id.int and str(topic.topic_id) != task.topic_id:
        return f"The topic {task.range.topic} was deleted and recreated"
    return None


def _chunks(
    cluster: Cluster, wanted: OffsetRange, fetching: Fetching, loss: DataLoss
) -> Iterator[tuple[int, FetchedBatches]]:
    """The batches of a range, each with the first wanted offset; skips deleted records if that is allowed."""
    tp = TopicPartition(wanted.topic, wanted.partition)
    isolation = READ_COMMITTED if fetching.read_committed else READ_UNCOMMITTED
    position = wanted.start
    while position < wanted.end:
        for answer in read_range(cluster, tp, position, wanted.end, isolation=isolation, sizes=sizes(fetching)):
            if isinstance(answer, Failure):
                position = _position_after_gap(cluster, wanted._replace(start=position), answer, loss)
                break
            yield position, answer
            position = answer.next_offset
        else:
            return


def _position_after_gap(cluster: Cluster, left: OffsetRange, problem: Failure, loss: DataLoss) -> int:
    """The next position after a failure that means data loss."""
    if problem.code in GONE:
        loss.report(f"{left} could not be read: {problem}")
        return left.end
    if problem.code != WireError.OFFSET_OUT_OF_RANGE:
        raise QueryFailed(f"{left} could not be read: {problem}")
    tp = TopicPartition(left.topic, left.partition)
    earliest = unwrap(list_offsets(cluster, {tp: EARLIEST})[tp]).offset
    if earliest <= left.start:
        loss.report(f"{left} could not be read: the partition ends before it")
        return left.end
    loss.report(f"{left._replace(end=min(earliest, left.end))} was deleted: the log start offset is {earliest}")
    return earliest


def sizes(fetching: Fetching) -> FetchSizes:
    most = min(fetching.max_partition_bytes, fetching.max_bytes)
    return FetchSizes(most, fetching.min_bytes, fetching.max_wait_ms)
