"""A query as a group: commits how far it is, for lag tools to see. Reads nothing back: the checkpoint is the truth."""

import logging
from collections.abc import Mapping

from moldau.client.direct.failed import Failed
from moldau.client.direct.metadata import Cluster, Place
from moldau.client.direct.offsets import Committed, commit

LOG = logging.getLogger("moldau.spark")


class Progress:
    """What is committed for the group, which may be None: then nothing is."""

    def __init__(self, group_id: str | None) -> None:
        self._group_id = group_id
        self._committed: dict[Place, int] = {}

    def report(self, cluster: Cluster, offsets: Mapping[Place, int]) -> None:
        """Commits what has changed. A commit that fails is a warning: the next batch commits again."""
        changed = {place: offset for place, offset in offsets.items() if self._committed.get(place) != offset}
        if self._group_id is None or not changed:
            return
        answer = commit(cluster, self._group_id, {place: Committed(offset) for place, offset in changed.items()})
        if isinstance(answer, Failed):
            LOG.warning("The progress of the group %s could not be committed: %s", self._group_id, answer)
        else:
            self._committed |= changed
