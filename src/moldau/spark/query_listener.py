"""QueryListener: a StreamingQueryListener that calls plain functions. Imports PySpark.

`started` runs in Spark's thread before the query reads anything, so it must be fast. Other events arrive a moment
later.
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

EventHandler = Callable[[Any], None]


def ignore(event: Any) -> None:
    """Default handler."""


class QueryListener(StreamingQueryListener):
    """Calls one function per kind of event."""

    def __init__(
        self, *, started: EventHandler = ignore, progressed: EventHandler = ignore, ended: EventHandler = ignore
    ) -> None:
        self._started, self._progressed, self._ended = started, progressed, ended

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - PySpark's name
        self._started(event)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._progressed(event)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Ignored."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._ended(event)
