"""GroupCommitter: commits the progress of a query to a consumer group, for lag tools. Never reads it back."""

import logging
from collections.abc import Mapping

from moldau.base.ids import TopicPartition
from moldau.client.direct.failure import Failure
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.offsets import OffsetAndMetadata, commit

logger = logging.getLogger("moldau.spark")


class GroupCommitter:
    """Commits nothing if the group id is None."""

    def __init__(self, group_id: str | None) -> None:
        self._group_id = group_id
        self._committed: dict[TopicPartition, int] = {}

    def report(self, cluster: Cluster, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit changed offsets. A failure is logged as a warning: the next batch commits again."""
        changed = {tp: offset for tp, offset in offsets.items() if self._committed.get(tp) != offset}
        if self._group_id is None or not changed:
            return
        result = commit(cluster, self._group_id, {tp: OffsetAndMetadata(offset) for tp, offset in changed.items()})
        if isinstance(result, Failure):
            logger.warning(
                "Could not commit the progress of the query to the group %s; the next batch tries again: %s",
                self._group_id,
                result,
            )
        else:
            self._committed |= changed
