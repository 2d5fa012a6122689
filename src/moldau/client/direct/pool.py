"""ConnectionPool: open connections that outlive their Cluster, for a process that opens many of these in turn.

A connection costs a round trip for its API versions, and with TLS and SASL much more. Only connections that wait for
no response are kept, and one that the broker has closed meanwhile is not used again. Not thread-safe.
"""

from collections import deque
from collections.abc import Hashable

from moldau.client.direct.connection import Connection

MAX_IDLE = 8  # connections; the oldest is closed


class ConnectionPool:
    def __init__(self, max_idle: int = MAX_IDLE) -> None:
        self._max_idle = max_idle
        self._idle: deque[tuple[Hashable, Connection]] = deque()

    def take(self, key: Hashable) -> Connection | None:
        """An idle connection with this key, or None."""
        for each in [each for each in self._idle if each[0] == key]:
            self._idle.remove(each)
            if each[1].idle:
                return each[1]
            each[1].close()
        return None

    def give(self, key: Hashable, connection: Connection) -> None:
        """Keep a connection that its user no longer needs, or close it."""
        if not connection.idle:
            connection.close()
            return
        self._idle.append((key, connection))
        if len(self._idle) > self._max_idle:
            self._idle.popleft()[1].close()

    def close(self) -> None:
        while self._idle:
            self._idle.pop()[1].close()
