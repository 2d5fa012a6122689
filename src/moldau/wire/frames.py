"""Split a byte stream into frames: a four-byte length, then that many bytes. Knows no sockets and no messages.

Most reads bring whole frames, so all connections receive into one shared scratch buffer, and frames are views of it.
Only a frame that arrived in part moves to a buffer of its own, which grows with the received bytes: a length is not
trusted, and nothing is allocated by it.
"""

from struct import Struct
from typing import Final

LENGTH: Final = Struct(">i")
LENGTH_SIZE: Final = LENGTH.size
MIN_FRAME_SIZE: Final = 8  # api key, version, correlation id
MIN_GROWTH: Final = 64 * 1024


class FrameDecoder:
    """One per connection: receive into `receive_buffer()`, then call `feed` with the number of bytes.

    Frames are views of a shared buffer, valid until the next `receive_buffer()`. After a wrong length `refusal` says
    why: the frames before it are valid, and the connection has to be closed.
    """

    __slots__ = ("_filled", "_need", "_own", "_scratch", "_view", "largest", "refusal", "refused", "smallest")

    def __init__(self, scratch: memoryview, largest: int) -> None:
        self.smallest = MIN_FRAME_SIZE
        self.largest = largest
        self.refusal = ""
        self.refused = b""  # the four bytes of the wrong length
        self._scratch = scratch
        self._own: bytearray | None = None  # a partial frame, its length included
        self._view: memoryview | None = None  # of `_own`, which cannot grow while it has views
        self._filled = 0
        self._need = 0  # size of that frame with its length; 0 while the length is incomplete

    @property
    def partial(self) -> int:
        """The full size of the partial frame, 0 if there is none or its length is not known yet."""
        return self._need if self._own is not None else 0

    @property
    def empty(self) -> bool:
        """Whether there is no partial frame."""
        return self._own is None

    def receive_buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        own = self._own
        if own is None:
            return self._scratch
        filled = self._filled
        if not self._need:  # fewer than four bytes: receive behind them in the scratch buffer
            self._scratch[:filled] = own
            return self._scratch[filled:]
        if filled == len(own):
            own.extend(bytes(min(self._need - filled, max(filled, MIN_GROWTH))))
        self._view = memoryview(own)[filled:]
        return self._view

    def feed(self, count: int) -> list[memoryview]:
        """The frames that are complete after `count` more bytes."""
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
            if size < self.smallest or size > self.largest:
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
        return f"a request of {size} bytes is impossible; the client does not speak the Kafka protocol"


class CopyingFrameDecoder(FrameDecoder):
    """Grows a frame by copying it to a larger buffer: a transport may still hold the one that it received into."""

    def receive_buffer(self) -> memoryview:
        own = self._own
        if own is None or not self._need:
            return super().receive_buffer()
        if self._filled == len(own):
            larger = bytearray(min(self._need, 2 * max(self._filled, MIN_GROWTH)))
            larger[: self._filled] = own
            self._own = own = larger
        return memoryview(own)[self._filled :]
