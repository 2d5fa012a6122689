"""Channel: the bytes of one connection, behind which its socket hides. Knows no frames, and `tls.py` has TLS.

A connection hands bytes to its channel and asks to be called when the channel can give or take more. What readiness
means is the channel's business: an encrypted channel may hold received bytes that the socket no longer announces, or
have to write before it can read.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from moldau.base.slices import FileSlice

_MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)  # macOS has no such flag

Buffer = bytes | bytearray | memoryview


class Channel(Protocol):
    """Never blocks. All methods raise OSError when the connection is lost.

    A call of `receive_into` or `send…` raises BlockingIOError if nothing can be moved now. An encrypting channel
    translates SSLWantReadError and SSLWantWriteError to it, and itself knows which readiness it waits for. The caller
    repeats a send with the same bytes, and maybe more behind them, once the channel is ready: TLS insists on that.

    Bytes that a send took count as sent. A channel may keep them as ciphertext only if it sends them by itself: no call
    may follow that would flush them.
    """

    def receive_into(self, buffer: memoryview, /) -> int:
        """Put received bytes into the buffer and return their number; 0 if the client closed the connection."""

    def send(self, data: bytes | bytearray, /) -> int:
        """Send from the start of `data`; returns how many bytes were taken."""

    def send_buffers(self, buffers: Sequence[Buffer], more: bool) -> int:
        """Send from the first of the buffers on. `more`: other bytes follow at once and may share a packet."""

    def send_slice(self, slice_: FileSlice, sent: int, until: int) -> int:
        """Send bytes `sent` to `until` of the slice, or fewer if the channel is full; 0 if the file ended early.

        After fewer bytes the caller waits until the channel is writable, or tries again in a later turn of the loop. An
        encrypting channel counts itself full after a piece, since it has to read and encrypt on the loop.
        Blocks the loop on pages that are not in the page cache: see `file_slices`.
        """

    def start_reading(self, ready: Callable[[], None]) -> None:
        """Call `ready` whenever `receive_into` has something to give, until `stop_reading`.

        From a later turn of the loop, never from within this call: the caller is in the middle of a change.
        """

    def stop_reading(self) -> None: ...

    def start_writing(self, ready: Callable[[], None]) -> None:
        """Call `ready` whenever a send may succeed, until `stop_writing`. Never from within this call."""

    def stop_writing(self) -> None: ...

    def close(self) -> None: ...


class PlainChannel:
    """An unencrypted, non-blocking socket. Receiving and sending are the socket's own methods: no call in between."""

    __slots__ = ("_fd", "_loop", "_sendmsg", "_socket", "receive_into", "send")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._loop = loop
        self._sendmsg = sock.sendmsg
        self.receive_into = sock.recv_into
        self.send = sock.send

    def send_buffers(self, buffers: Sequence[Buffer], more: bool) -> int:
        return self._sendmsg(buffers, (), _MSG_MORE if more else 0)

    def send_slice(self, slice_: FileSlice, sent: int, until: int) -> int:
        return os.sendfile(self._fd, slice_.file.fd, slice_.position + sent, until - sent)

    def start_reading(self, ready: Callable[[], None]) -> None:
        self._loop.add_reader(self._fd, ready)

    def stop_reading(self) -> None:
        self._loop.remove_reader(self._fd)

    def start_writing(self, ready: Callable[[], None]) -> None:
        self._loop.add_writer(self._fd, ready)

    def stop_writing(self) -> None:
        self._loop.remove_writer(self._fd)

    def close(self) -> None:
        self._loop.remove_reader(self._fd)
        self._loop.remove_writer(self._fd)
        self._socket.close()
