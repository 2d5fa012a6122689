"""Spark tells Python how queries fare: one listener, given plain functions. Imports PySpark.

`started` runs before the query reads anything, in Spark's own thread: it must be quick. The others come a moment after
what they tell.
"""

from collections.abc import Callable
from typing import Any

from pyspark.sql.streaming.listener import StreamingQueryListener

EventHandler = Callable[[Any], None]


def ignore(event: Any) -> None:
    """For those whom some events do not concern."""


class QueryListener(StreamingQueryListener):
    """Hands on each kind of event."""

    def __init__(
        self, *, started: EventHandler = ignore, progressed: EventHandler = ignore, ended: EventHandler = ignore
    ) -> None:
        self._started, self._progressed, self._ended = started, progressed, ended

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - PySpark's name
        self._started(event)

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        self._progressed(event)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        """Nothing happened."""

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        self._ended(event)
