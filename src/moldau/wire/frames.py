"""Cuts a byte stream into frames: a four-byte length, then that many bytes. Knows no sockets and no messages.

Most reads bring whole frames, so all connections read into one shared scratch buffer and frames are borrowed from it
without a copy. Only a frame that arrived in part moves to a buffer of its own, which grows with what really came: a
length is a stranger's claim, and nothing is allocated by it.
"""

from struct import Struct

LENGTH = Struct(">i")
LENGTH_SIZE = LENGTH.size
LEAST_FRAME = 8  # api key, version, correlation id
LEAST_GROWTH = 64 * 1024


class FrameCutter:
    """One per connection. `room()` is where the next bytes go; `feed(n)` says how many came and returns whole frames.

    Frames are views of a borrowed buffer: they are good until the next call of `room()`. Once `refusal` says something,
    a length prefix was wrong: the frames before it are good, nothing after it can be trusted, and there is no `room()`.
    """

    __slots__ = ("_filled", "_need", "_own", "_scratch", "_view", "largest", "refusal", "refused")

    def __init__(self, scratch: memoryview, largest: int) -> None:
        self.largest = largest
        self.refusal = ""
        self.refused = b""  # the bytes that are no possible length
        self._scratch = scratch
        self._own: bytearray | None = None  # a frame that arrived in part, its length included
        self._view: memoryview | None = None  # exported while bytes are received: a bytearray cannot grow then
        self._filled = 0
        self._need = 0  # bytes of that frame with its length; 0 while not even the length is complete

    @property
    def partial(self) -> int:
        """The size that an unfinished frame will have, 0 if there is none or its length is not known yet."""
        return self._need if self._own is not None else 0

    @property
    def empty(self) -> bool:
        """True between frames: the peer may leave without leaving half a request behind."""
        return self._own is None

    def room(self) -> memoryview:
        own = self._own
        if own is None:
            return self._scratch
        filled = self._filled
        if not self._need:  # fewer than four bytes: read on in the scratch buffer, behind them
            self._scratch[:filled] = own
            return self._scratch[filled:]
        if filled == len(own):
            own.extend(bytes(min(self._need - filled, max(filled, LEAST_GROWTH))))
        self._view = memoryview(own)[filled:]
        return self._view

    def feed(self, count: int) -> list[memoryview]:
        own = self._own
        if own is None:
            return self._cut(count)
        if not self._need:
            self._own = None
            return self._cut(self._filled + count)
        if self._view is not None:
            self._view.release()
            self._view = None
        self._filled += count
        if self._filled < self._need:
            return []
        self._own = None
        return [memoryview(own)[LENGTH_SIZE:]]

    def _cut(self, end: int) -> list[memoryview]:
        view = self._scratch
        frames: list[memoryview] = []
        start = 0
        size = -1
        while end - start >= LENGTH_SIZE:
            (size,) = LENGTH.unpack_from(view, start)
            if size < LEAST_FRAME or size > self.largest:
                self.refusal = self._why(size)
                self.refused = bytes(view[start : start + LENGTH_SIZE])
                return frames
            stop = start + LENGTH_SIZE + size
            if stop > end:
                break
            frames.append(view[start + LENGTH_SIZE : stop])
            start = stop
        if start < end:
            self._own = bytearray(view[start:end])
            self._filled = end - start
            self._need = LENGTH_SIZE + size if self._filled >= LENGTH_SIZE else 0
        return frames

    def _why(self, size: int) -> str:
        if size > self.largest:
            return f"a request of {size} bytes is larger than socket.request.max.bytes={self.largest}"
        return f"a request cannot have {size} bytes: this peer does not speak Kafka's protocol"
