"""TlsChannel: the encrypted bytes of one connection after its handshake. Knows no frames and no certificates.

OpenSSL works on memory: the channel itself receives ciphertext from the socket and sends it there. So a read takes many
TLS records with one system call, and a write never blocks inside OpenSSL. docs/decisions/0023-tls.md has the figures.

Ciphertext that the socket does not take is kept and sent when it can be. Until then nothing more is encrypted, so a
connection holds at most one piece.
"""

import asyncio
import contextlib
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Final

from moldau.base.slices import FileSlice
from moldau.net.channel import Buffer

PIECE: Final = 64 * 1024  # plaintext that is encrypted at a time, and the most ciphertext that is received at a time
_MSG_MORE: Final[int] = getattr(socket, "MSG_MORE", 0)  # macOS has no such flag
_NOTHING: Final = memoryview(b"")

# One loop uses all channels, and no bytes stay here between two calls.
_received = memoryview(bytearray(PIECE))
_from_file = memoryview(bytearray(PIECE))


class TlsChannel:
    """A `Channel` over a non-blocking socket whose handshake is done. `incoming` may hold the first request already."""

    __slots__ = (
        "_again",
        "_fd",
        "_incoming",
        "_loop",
        "_on_readable",
        "_on_writable",
        "_outgoing",
        "_sending",
        "_socket",
        "_tls",
        "_unsent",
    )

    def __init__(
        self,
        sock: socket.socket,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._tls = tls
        self._incoming = incoming
        self._outgoing = outgoing
        self._loop = loop
        self._unsent = _NOTHING  # ciphertext that the socket has not taken yet
        self._sending = False  # the loop calls `_writable`
        self._on_readable: Callable[[], None] | None = None
        self._on_writable: Callable[[], None] | None = None
        self._again: asyncio.Handle | None = None
        if outgoing.pending:  # the end of the handshake
            self._flush(False)

    # ── receiving ──

    def receive_into(self, buffer: memoryview, /) -> int:
        count = self._decrypt(buffer)
        if count is None:
            received = self._socket.recv_into(_received)
            if not received:
                return 0
            self._incoming.write(_received[:received])
            count = self._decrypt(buffer)
            if count is None:
                raise BlockingIOError
        if self._outgoing.pending:  # the answer to a key update
            self._flush(False)
        if count == len(buffer) and (self._incoming.pending or self._tls.pending()):
            self._read_again()  # the socket does not announce what was received already
        return count

    def _decrypt(self, buffer: memoryview) -> int | None:
        """Decrypt whole records; None if there is none, 0 if the client ended the connection."""
        count = 0
        try:
            while count < len(buffer):
                read = self._tls.read(len(buffer) - count, buffer[count:])
                if not read:
                    break
                count += int(read)
        except ssl.SSLWantReadError:
            return count or None
        except ssl.SSLZeroReturnError:
            return count
        except ssl.SSLError as problem:
            if not count:
                raise OSError(0, f"TLS: {describe(problem)}") from None
            self._read_again()  # tells the problem
        return count

    def start_reading(self, ready: Callable[[], None]) -> None:
        self._on_readable = ready
        self._loop.add_reader(self._fd, ready)
        if self._incoming.pending or self._tls.pending():
            self._read_again()

    def stop_reading(self) -> None:
        self._on_readable = None
        self._loop.remove_reader(self._fd)

    def _read_again(self) -> None:
        if self._again is None:
            self._again = self._loop.call_soon(self._buffered)

    def _buffered(self) -> None:
        self._again = None
        if self._on_readable is not None:
            self._on_readable()

    # ── sending ──

    def send(self, data: Buffer, /) -> int:
        if self._unsent:
            raise BlockingIOError
        count = self._encrypt(data if len(data) <= PIECE else memoryview(data)[:PIECE])
        self._flush(False)
        return count

    def send_buffers(self, buffers: Sequence[Buffer], more: bool) -> int:
        if self._unsent:
            raise BlockingIOError
        pieces: list[Buffer] = []
        size = 0
        for each in buffers:
            pieces.append(memoryview(each)[: PIECE - size] if size + len(each) > PIECE else each)
            size += len(pieces[-1])
            if size == PIECE:
                break
        count = self._encrypt(b"".join(pieces))  # one record for many small responses
        self._flush(more)
        return count

    def send_slice(self, slice_: FileSlice, sent: int, until: int) -> int:
        if self._unsent:
            raise BlockingIOError
        wanted = _from_file[: min(until - sent, PIECE)]
        read = os.preadv(slice_.file.fd, [wanted], slice_.position + sent)
        if not read:
            return 0
        self._encrypt(wanted[:read])
        self._flush(False)
        return read

    def _encrypt(self, data: Buffer) -> int:
        try:
            return self._tls.write(data)
        except ssl.SSLError as problem:
            raise OSError(0, f"TLS: {describe(problem)}") from None

    def _flush(self, more: bool) -> None:
        """Send the ciphertext, and keep what the socket does not take. All of it counts as sent."""
        if len(self._unsent) > 2 * PIECE:
            raise OSError(0, "TLS: the client asks for new keys, but does not read")
        if self._unsent:  # its order must not change
            self._unsent = memoryview(bytes(self._unsent) + self._outgoing.read())
            return
        ciphertext = self._outgoing.read()
        try:
            count = self._socket.send(ciphertext, _MSG_MORE if more else 0)
        except (BlockingIOError, InterruptedError):
            count = 0
        if count < len(ciphertext):
            self._unsent = memoryview(ciphertext)[count:]
            self._watch()

    def start_writing(self, ready: Callable[[], None]) -> None:
        self._on_writable = ready
        self._watch()

    def stop_writing(self) -> None:
        self._on_writable = None
        if not self._unsent:
            self._unwatch()

    def _watch(self) -> None:
        if not self._sending:
            self._sending = True
            self._loop.add_writer(self._fd, self._writable)

    def _unwatch(self) -> None:
        if self._sending:
            self._sending = False
            self._loop.remove_writer(self._fd)

    def _writable(self) -> None:
        if self._unsent:
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return
            except OSError:  # the next receive or send tells it to the connection
                self._unsent = _NOTHING
                with contextlib.suppress(OSError):  # it may be shut down already
                    self._socket.shutdown(socket.SHUT_RDWR)
            if self._unsent:
                return
        if self._on_writable is not None:
            self._on_writable()
        else:
            self._unwatch()

    def close(self) -> None:
        """Say goodbye, if there is room for it, and close. Nothing is waited for."""
        if self._again is not None:
            self._again.cancel()
        self._on_readable = self._on_writable = None
        self._loop.remove_reader(self._fd)
        self._unwatch()
        if not self._unsent:
            with contextlib.suppress(ssl.SSLError, OSError):  # the client's own goodbye is not waited for
                self._tls.unwrap()
            send_quietly(self._socket, self._outgoing.read())
        self._socket.close()


def send_quietly(sock: socket.socket, data: bytes) -> None:
    """Send the last bytes of a connection; it is closed whether they are taken or not."""
    try:
        sock.send(data)
    except OSError:
        return


def describe(problem: ssl.SSLError) -> str:
    """OpenSSL's reason as words, without its source position."""
    return (problem.reason or str(problem)).replace("_", " ").lower()
