"""What all connections share: the read buffer, the memory for requests that arrive in part, the count of running ones.

Every bound here has the name of its setting. A connection that meets one waits; it is woken when there is room again.
"""

import asyncio
from typing import Protocol

from moldau.net.throttled_log import ThrottledLog

SCRATCH_SIZE = 256 * 1024


class LimitedConnection(Protocol):
    def resume(self) -> None: ...
    def memory_granted(self, size: int, /) -> None: ...


class RequestLimits:
    def __init__(self, *, largest_request: int, queued_requests: int, queued_bytes: int) -> None:
        self.log = ThrottledLog()
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))
        self.largest_request = largest_request  # socket.request.max.bytes
        self.queued_requests = queued_requests  # queued.max.requests
        self.queued_bytes = queued_bytes  # queued.max.request.bytes; negative: no bound
        self.running = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self.reserved = 0
        self._closing = False
        self._waiting: dict[LimitedConnection, None] = {}  # in the order of their coming
        self._waiting_for_memory: dict[LimitedConnection, int] = {}

    @property
    def full(self) -> bool:
        return self.running >= self.queued_requests or self._closing

    def wait(self, connection: LimitedConnection) -> None:
        self._waiting[connection] = None

    def task_started(self) -> None:
        self.running += 1
        self._idle.clear()

    async def drain(self) -> None:
        """Let no more requests in, for good, and wait until none runs as a task."""
        self._closing = True
        await self._idle.wait()

    def task_ended(self) -> None:
        self.running -= 1
        if not self.running:
            self._idle.set()
        while self._waiting and not self.full:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.resume()

    def reserve(self, size: int) -> bool:
        """Take `size` bytes. The last one in may overdraw, so that a request larger than what is left is not stuck."""
        if 0 <= self.queued_bytes <= self.reserved:
            return False
        self.reserved += size
        return True

    def wait_for_memory(self, connection: LimitedConnection, size: int) -> None:
        self._waiting_for_memory[connection] = size

    def release(self, size: int) -> None:
        self.reserved -= size
        while self._waiting_for_memory:
            connection, wanted = next(iter(self._waiting_for_memory.items()))
            if not self.reserve(wanted):
                return
            del self._waiting_for_memory[connection]
            connection.memory_granted(wanted)

    def forget(self, connection: LimitedConnection) -> None:
        """A connection that is gone waits for nothing."""
        self._waiting.pop(connection, None)
        self._waiting_for_memory.pop(connection, None)
