"""A query as a group: commits how far it is, for lag tools to see. Reads nothing back: the checkpoint is the truth."""

import logging
from collections.abc import Mapping

from moldau.base.ids import TopicPartition
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import OffsetAndMetadata, commit

logger = logging.getLogger("moldau.spark")


class GroupCommitter:
    """What is committed for the group, which may be None: then nothing is."""

    def __init__(self, group_id: str | None) -> None:
        self._group_id = group_id
        self._committed: dict[TopicPartition, int] = {}

    def report(self, cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> None:
        """Commits what has changed. A commit that fails is a warning: the next batch commits again."""
        changed = {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}
        if self._group_id is None or not changed:
            return
        answer = commit(cluster, self._group_id, {tp: OffsetAndMetadata(offset) for tp, offset in changed.items()})
        if isinstance(answer, Failure):
            logger.warning("The progress of the group %s could not be committed: %s", self._group_id, answer)
        else:
            self._committed |= changed
