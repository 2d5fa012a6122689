"""Dead letters exactly once: a task writes them and an offset in one transaction, and a repeated task finds the offset.

The group, which is also the transactional id, is `moldau-QUERY-deadLetters-TOPIC-ORIGIN-NUMBER`: the dead-letter topic,
the partition that is read, and the number of the task in it. The committed offset is the end of the task's range, on
the partition that is read; its metadata has the start. A replayed batch has the same ranges, so the same task finds its
own range. Tasks without dead letters do none of this.
"""

import json
from collections.abc import Sequence
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import OffsetAndMetadata, committed
from moldau.client.direct.produce import Producer
from moldau.client.direct.transactions import TransactionalProducer
from moldau.spark.cluster import QueryFailed, unwrap
from moldau.spark.options import ReadOptions
from moldau.spark.source.dead_letters import DeadLetters
from moldau.spark.source.plan import ReadTask
from moldau.spark.value_formats import Rejected

QUERY_ID = "sql.streaming.queryId"  # local property of a stream's tasks


def this_query() -> str:
    """The id of the query of this Python worker's task."""
    from pyspark import TaskContext

    context = TaskContext.get()
    query = None if context is None else context.getLocalProperty(QUERY_ID)
    if not query:
        raise QueryFailed("dead letters can be written exactly once in streaming queries only: leave out delivery")
    return query


class DeadLettersOnce(DeadLetters):
    """Connects for the first dead letter, and then finds out whether an earlier attempt has written them."""

    def __init__(self, options: ReadOptions, task: ReadTask, query: str) -> None:
        assert options.dead_letters is not None
        super().__init__(options.connection, options.dead_letters)
        self._tp = TopicPartition(task.range.topic, task.range.partition)
        self._offset = OffsetAndMetadata(task.range.end, json.dumps({"start": task.range.start}))
        self._group = f"moldau-{query}-deadLetters-{options.dead_letters}-{self._tp}-{task.number}"
        self._timeout_ms = options.transaction_timeout_ms
        self._written: bool | None = None  # by an earlier attempt; None: unknown

    def take(self, batch: Any, rejected: Sequence[Rejected]) -> None:
        if rejected and self._written is None:
            self._written = self._is_written()
        if not self._written:
            super().take(batch, rejected)

    def _is_written(self) -> bool:
        """Start the producer first: it fences an earlier attempt and ends its transaction."""
        cluster = self._open().cluster
        found = unwrap(committed(cluster, self._group, [self._tp])).get(self._tp)
        if isinstance(found, Failure):
            raise QueryFailed(str(found))
        return found is not None and found[:2] == self._offset[:2]

    def producer(self, cluster: Cluster) -> Producer:
        return TransactionalProducer(cluster, self._group, timeout_ms=self._timeout_ms)

    def finish(self, producer: Producer, *, failed: bool) -> None:
        assert isinstance(producer, TransactionalProducer)
        if self._written is not False:
            return
        if failed:
            producer.abort()
            return
        self.check(producer.commit_offsets(self._group, {self._tp: self._offset}))
        self.check(producer.commit())

    def check(self, problem: Failure | None) -> None:
        if problem is not None and problem.fenced:
            raise QueryFailed(
                f"the task that reads {self._tp} was fenced while it wrote dead letters, and none of them are written: "
                "another attempt of it has started (the query runs twice, or spark.speculation is on), two sources of "
                "the query read the topic and have the same deadLetters (name another topic for one), or it took "
                f"longer than kafka.transaction.timeout.ms ({self._timeout_ms} ms): {problem}"
            )
        super().check(problem)
