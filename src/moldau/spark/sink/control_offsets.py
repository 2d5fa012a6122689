"""Control offsets: what a query has written, kept by the brokers as offsets of groups that have no members.

A sink has one group for each of its tasks, `moldau-QUERY-SINK-TASK`, which is also the task's transactional id, and
one for the driver, `moldau-QUERY-SINK-batches`. Each commits one offset, a batch's number, on partition 0 of one topic:
a task in the transaction of its rows, the driver when all tasks of the batch have returned. What else there is to say
is in the offset's metadata, as JSON. Reads and writes them; what follows from them is in exactly_once.py.
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
    """A task has written a batch: so many rows with this digest."""

    batch: int
    rows: int
    digest: str

    def offset(self) -> OffsetAndMetadata:
        return OffsetAndMetadata(self.batch, json.dumps({"rows": self.rows, "digest": self.digest}))


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """All tasks of a batch have written it. `run` is the query's start that did: empty if nobody knows."""

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

    def done(self, cluster: Cluster, index: int) -> TaskCommit | None:
        """What the task has written last, once no open transaction may change it."""
        found = self._read(cluster, self.task_group(index))
        return None if found is None else TaskCommit(found[0], _number(found[1], "rows"), str(found[1].get("digest")))

    def finished(self, cluster: Cluster) -> BatchCommit | None:
        found = self._read(cluster, self.driver_group)
        return (
            None if found is None else BatchCommit(found[0], _number(found[1], "tasks"), str(found[1].get("run", "")))
        )

    def finish(self, cluster: Cluster, finished: BatchCommit) -> None:
        unwrap(commit(cluster, self.driver_group, {self.tp: finished.offset()}))

    def tasks_from(self, cluster: Cluster, index: int) -> list[int]:
        """The tasks of this number and higher that have ever written anything, as far as brokers remember."""
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
            raise QueryFailed(f"somebody else has committed an offset as the group {group}, which is the sink's own")
        return found.offset, metadata


def _number(metadata: dict[str, Any], name: str) -> int:
    found = metadata.get(name)
    return found if isinstance(found, int) else -1
