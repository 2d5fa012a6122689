"""Control offsets: the batches that a query has written, as committed offsets of groups without members.

A sink has a group per task, `moldau-QUERY-SINK-TASK`, which is also the task's transactional id, and one for the
driver, `moldau-QUERY-SINK-batches`. Each commits one offset, the batch id, on partition 0 of one topic: a task in the
transaction of its rows, the driver when all tasks of the batch have returned. The offset's metadata has more, as JSON.
exactly_once.py decides what follows from them.
"""

import json
from dataclasses import dataclass
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.client.direct.failure import Failure
from moldau.client.direct.groups import list_groups
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import OffsetAndMetadata, commit, committed
from moldau.spark.cluster import QueryFailed, unwrap


@dataclass(frozen=True, slots=True)
class TaskCommit:
    """A task has written so many rows of a batch, with this digest."""

    batch: int
    rows: int
    digest: str

    def offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.batch, json.dumps({"rows": self.rows, "digest": self.digest}))


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """All tasks have written the batch. `run` is the run id of the query; empty if unknown."""

    batch: int
    tasks: int
    run: str

    def offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.batch, json.dumps({"tasks": self.tasks, "run": self.run}))


@dataclass(frozen=True, slots=True)
class ControlOffsets:
    """The control offsets of one sink of one query."""

    query: str
    sink: str
    topic: str

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, 0)

    def task_group(self, index: int) -> str:
        return f"moldau-{self.query}-{self.sink}-{index}"

    @property
    def driver_group(self) -> str:
        return f"moldau-{self.query}-{self.sink}-batches"

    def task_commit(self, cluster: Cluster, index: int) -> TaskCommit | None:
        """The last commit of a task; waits while an open transaction may change it."""
        found = self._read(cluster, self.task_group(index))
        return None if found is None else TaskCommit(found[0], _number(found[1], "rows"), str(found[1].get("digest")))

    def batch_commit(self, cluster: Cluster) -> BatchCommit | None:
        found = self._read(cluster, self.driver_group)
        return (
            None if found is None else BatchCommit(found[0], _number(found[1], "tasks"), str(found[1].get("run", "")))
        )

    def commit_batch(self, cluster: Cluster, batch_commit: BatchCommit) -> None:
        unwrap(commit(cluster, self.driver_group, {self.tp: batch_commit.offset()}))

    def tasks_from(self, cluster: Cluster, index: int) -> list[int]:
        """Tasks from this index on that have a committed offset."""
        start = self.task_group(0)[:-1]
        ends = [group.removeprefix(start) for group in unwrap(list_groups(cluster)) if group.startswith(start)]
        return sorted(int(end) for end in ends if end.isascii() and end.isdigit() and int(end) >= index)

    def _read(self, cluster: Cluster, group: str) -> tuple[int, dict[str, Any]] | None:
        found = unwrap(committed(cluster, group, [self.tp])).get(self.tp)
        if found is None:
            return None
        if isinstance(found, Failure):
            raise QueryFailed(str(found))
        try:
            metadata = json.loads(found.metadata)
        except ValueError:
            metadata = None
        if not isinstance(metadata, dict):
            raise QueryFailed(f"another client has committed an offset of the group {group}, which belongs to the sink")
        return found.offset, metadata


def _number(metadata: dict[str, Any], name: str) -> int:
    found = metadata.get(name)
    return found if isinstance(found, int) else -1
