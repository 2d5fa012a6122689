"""RequestLimits: the bounds that all connections share, on running requests and on memory for partial ones.

Each bound is a setting. A connection that meets one is muted, and granted a slot or memory when there is room again.
A client that stops in the middle of a large request must not keep memory from others: its connection is closed when
others have waited for memory for a while.
"""

import asyncio
from typing import Final, Protocol

from moldau.net.throttled_log import ThrottledLog

SCRATCH_SIZE: Final = 256 * 1024
STALLED_SECONDS: Final = 10.0  # without a byte, for a connection that holds memory while others wait


class LimitedConnection(Protocol):
    def slot_granted(self) -> None: ...
    def memory_granted(self, size: int, /) -> None: ...
    def is_stalled(self, since: float, /) -> bool: ...
    def close(self, reason: str, /) -> None: ...


class RequestLimits:
    def __init__(self, *, largest_request: int, queued_requests: int, queued_bytes: int) -> None:
        self.log = ThrottledLog()
        self.scratch = memoryview(bytearray(SCRATCH_SIZE))  # all connections receive into it
        self.largest_request = largest_request  # socket.request.max.bytes
        self.running = 0
        self.reserved = 0
        self.full = False  # no further request may be handled now
        self._queued_requests = queued_requests  # queued.max.requests
        self._queued_bytes = queued_bytes  # queued.max.request.bytes; negative: no bound
        self._idle = asyncio.Event()
        self._idle.set()
        self._draining = False
        self._waiting: dict[LimitedConnection, None] = {}  # first come, first served
        self._holders: dict[LimitedConnection, None] = {}  # connections that reserved memory
        self._waiting_for_memory: dict[LimitedConnection, int] = {}
        self._stall_check: asyncio.TimerHandle | None = None

    def task_started(self) -> None:
        self.running += 1
        self.full = self._draining or self.running >= self._queued_requests
        self._idle.clear()

    def task_ended(self) -> None:
        self.running -= 1
        self.full = self._draining or self.running >= self._queued_requests
        if not self.running:
            self._idle.set()
        while self._waiting and not self.full:
            connection = next(iter(self._waiting))
            del self._waiting[connection]
            connection.slot_granted()

    def wait(self, connection: LimitedConnection) -> None:
        """Grant the connection a slot when there is one again."""
        self._waiting[connection] = None

    async def drain(self) -> None:
        """Let no more requests in, for good, and wait until none runs as a task."""
        self._draining = self.full = True
        await self._idle.wait()

    def reserve(self, connection: LimitedConnection, size: int) -> bool:
        """Take `size` bytes. The last one may exceed the bound: else a large request could wait for ever."""
        if 0 <= self._queued_bytes <= self.reserved:
            return False
        self.reserved += size
        self._holders[connection] = None
        return True

    def wait_for_memory(self, connection: LimitedConnection, size: int) -> None:
        """Grant the connection `size` bytes when there is room again."""
        self._waiting_for_memory[connection] = size
        if self._stall_check is None:
            self._stall_check = asyncio.get_running_loop().call_later(STALLED_SECONDS, self._close_stalled)

    def _close_stalled(self) -> None:
        self._stall_check = None
        if not self._waiting_for_memory:
            return
        loop = asyncio.get_running_loop()
        since = loop.time() - STALLED_SECONDS
        self._stall_check = loop.call_later(STALLED_SECONDS, self._close_stalled)
        for connection in [each for each in self._holders if each.is_stalled(since)]:
            connection.close(
                f"no more of a large request came for {STALLED_SECONDS:.0f} s, and other requests wait for its memory "
                "(queued.max.request.bytes)"
            )

    def release(self, connection: LimitedConnection, size: int) -> None:
        self.reserved -= size
        self._holders.pop(connection, None)
        while self._waiting_for_memory:
            waiting, wanted = next(iter(self._waiting_for_memory.items()))
            if not self.reserve(waiting, wanted):
                return
            del self._waiting_for_memory[waiting]
            waiting.memory_granted(wanted)

    def forget(self, connection: LimitedConnection) -> None:
        """Grant nothing to a connection that was closed."""
        self._waiting.pop(connection, None)
        self._waiting_for_memory.pop(connection, None)
