"""One client's connection: frames in, replies out in the order of their requests. Knows nothing of APIs.

It owns a non-blocking socket itself rather than through a transport: requests are handled while they lie in the shared
read buffer, and a reply goes to the socket, or from file to socket, in the same turn of the loop.

A connection stops reading ("muted") while any of these holds, and goes on by itself afterwards:
- its peer does not take its replies (a reply could not be sent at once);
- a request runs as a task: Kafka promises that requests of one connection are processed in order;
- too many of its replies, or of their bytes, wait behind a parked one;
- the broker as a whole has too many requests or bytes under way.
"""

import asyncio
import logging
import socket
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Protocol

from moldau.base.session import Session
from moldau.base.slices import FileSlice
from moldau.net import sendfile
from moldau.net.reply import BadRequest, Parked, Parts, Reply
from moldau.net.request_limits import RequestLimits
from moldau.wire.frames import FrameCutter

PARKED_AT_MOST = 64  # replies of one connection that may wait at the same time
HELD_AT_MOST = 1024 * 1024  # bytes of ready replies that may wait behind a parked one
PIECES_AT_MOST = 64  # buffers given to one sendmsg, and replies collected before they are sent
LARGE_REPLY = 64 * 1024  # a reply of this size is sent before the next request is handled
TURN_AT_MOST = 1024 * 1024  # bytes sent from files before the loop looks after the others
_MORE: int = getattr(socket, "MSG_MORE", 0)  # macOS has no such flag

Outgoing = bytes | bytearray | FileSlice
Handled = Reply | Coroutine[Any, Any, Reply]


class Handler(Protocol):
    """Where frames go. The frame is borrowed: what outlives the call must be copied."""

    def __call__(self, connection: "Connection", frame: memoryview, /) -> Handled: ...


class Connection:
    __slots__ = (
        "_backlog",
        "_cutter",
        "_fd",
        "_handler",
        "_held",
        "_limits",
        "_loop",
        "_on_closed",
        "_out",
        "_reading",
        "_replies",
        "_reserved",
        "_running",
        "_sent",
        "_socket",
        "_starved",
        "_warm_until",
        "_warming",
        "_writing",
        "active_at",
        "closed",
        "session",
    )

    def __init__(
        self,
        sock: socket.socket,
        session: Session,
        limits: RequestLimits,
        handler: Handler,
        on_closed: "Callable[[Connection], None]",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._socket = sock
        self._fd = sock.fileno()
        self._limits = limits
        self._handler = handler
        self._on_closed = on_closed
        self._cutter = FrameCutter(limits.scratch, limits.largest_request)
        self._backlog: deque[bytes] = deque()  # whole frames that came while muted: one read's, as no other follows it
        self._replies: deque[Parked] = deque()  # parked replies, oldest first, and the ready ones behind them
        self._held = 0  # bytes of the ready ones among them
        self._out: deque[Outgoing] = deque()
        self._sent = 0  # bytes of the first outgoing piece that have left already
        self._warm_until = 0  # how much of the first outgoing piece, a slice, is known to be in memory
        self._reserved = 0  # bytes of the common memory that a request which came in part has taken
        self._starved = False  # waits for memory for the rest of a request
        self._running: asyncio.Task[None] | None = None
        self._warming: asyncio.Future[None] | None = None
        self._reading = False
        self._writing = False
        self.closed = False
        self.session = session
        self.active_at = self._loop.time()
        self._resume_reading()

    # ── reading ──

    def _readable(self) -> None:
        cutter = self._cutter
        try:
            count = self._socket.recv_into(cutter.room())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self.close(f"reading failed: {problem.strerror}")
            return
        if not count:
            self.close("" if cutter.empty else "the peer left in the middle of a request")
            return
        self.active_at = self._loop.time()
        self._handle_all(cutter.feed(count))
        if cutter.refusal:
            self.close(cutter.refusal)
        elif cutter.partial > self._reserved and not self.closed:
            self._reserve(cutter.partial - self._reserved)

    def _handle_all(self, frames: list[memoryview]) -> None:
        for at, frame in enumerate(frames):
            if self._muted():
                self._backlog.extend(bytes(rest) for rest in frames[at:])
                break
            self._handle(frame)
            if len(self._out) > PIECES_AT_MOST:
                self._flush()
            if self.closed:
                return
        if self._out and not self._writing:  # else the socket is full, and `_writable` goes on when it is not
            self._flush()
        if self._reserved and self._cutter.empty and not self._backlog:
            self._release_reserved()
        if self._muted() and not self.closed:
            self._pause_reading()

    def _handle(self, frame: memoryview) -> None:
        try:
            reply = self._handler(self, frame)
        except BadRequest as problem:
            self.close(str(problem))
            return
        if isinstance(reply, bytes):
            if self._replies:
                self._queue_behind(reply)
            else:
                self._out.append(reply)
                if len(reply) > LARGE_REPLY:
                    self._flush()
        elif reply is None:
            return
        elif isinstance(reply, list):
            reply = sendfile.gathered(reply)
            self._queue_behind(reply) if self._replies else self._out.extend(reply)
        elif isinstance(reply, Parked):
            self._replies.append(reply)
            reply.on_done(self._release_replies)
        else:
            self._limits.task_started()
            self._running = self._loop.create_task(self._run(reply))

    def _queue_behind(self, reply: bytes | Parts) -> None:
        ready = Parked()
        ready.resolve(reply)
        ready.held = len(reply) if isinstance(reply, bytes) else sum(map(_memory, reply))
        self._held += ready.held
        self._replies.append(ready)

    async def _run(self, work: Coroutine[Any, Any, Reply]) -> None:
        try:
            self._queue(await work)
        except BadRequest as problem:
            self.close(str(problem))
        finally:
            self._running = None
            self._limits.task_ended()  # may handle the next request of this very connection: its reply is queued behind
        self._release_replies()

    def _queue(self, reply: Reply) -> None:
        if isinstance(reply, Parked):
            if self.closed:  # the peer left; the change it asked for was made all the same
                reply.abandon()
                return
            self._replies.append(reply)
            reply.on_done(self._release_replies)
        elif reply is not None and not self.closed:
            self._queue_behind(reply)

    def _muted(self) -> bool:
        return (
            self._writing
            or self._running is not None
            or self._warming is not None
            or len(self._replies) >= PARKED_AT_MOST
            or self._held > HELD_AT_MOST
            or self._limits.full
        )

    def resume(self) -> None:
        """What muted this connection may be over: handle what waited, then read on."""
        while self._backlog and not self.closed and not self._muted():
            self._handle_all([memoryview(self._backlog.popleft())])
        if self.closed:
            return
        if self._muted():
            self._pause_reading()  # and wait for queued.max.requests if that is what is left
        elif not self._starved:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._loop.remove_reader(self._fd)
        if self._limits.full:
            self._limits.wait(self)

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self._loop.add_reader(self._fd, self._readable)

    def _reserve(self, size: int) -> None:
        """A frame that came in part takes its whole size from the common memory before more of it is read."""
        if self._limits.reserve(size):
            self._reserved += size
        else:
            self._starved = True
            self._pause_reading()
            self._limits.wait_for_memory(self, size)

    def memory_granted(self, size: int) -> None:
        self._starved = False
        self._reserved += size
        self.resume()

    def _release_reserved(self) -> None:
        reserved, self._reserved = self._reserved, 0
        self._limits.release(reserved)

    # ── writing ──

    def _release_replies(self) -> None:
        """Move the replies that are ready, up to the first that is not, to the socket."""
        if self.closed:
            return
        replies = self._replies
        failure: BadRequest | None = None
        while replies and replies[0].done and failure is None:
            ready = replies.popleft()
            self._held -= ready.held
            reply = ready.reply
            if isinstance(reply, bytes):
                self._out.append(reply)
            elif isinstance(reply, BadRequest):
                failure = reply
            elif reply is not None:
                self._out.extend(sendfile.gathered(reply))
        if self._out and not self._writing and self._warming is None:
            self._flush()
        if failure is not None:
            self.close(str(failure))
        if not self.closed:
            self.resume()

    def _flush(self) -> None:
        """Send until done, until the socket is full, or until the disk must be waited for."""
        if self._warming is not None:
            return
        out = self._out
        turn = TURN_AT_MOST
        try:
            while out:
                piece = out[0]
                if isinstance(piece, (bytes, bytearray)):
                    self._send_bytes(piece)
                elif turn <= 0:
                    self._wait_writable()
                    return
                elif count := self._send_slice(piece):
                    turn -= count
                else:
                    return
        except (BlockingIOError, InterruptedError):
            self._wait_writable()
            return
        except OSError as problem:
            self.close(f"writing failed: {problem.strerror}")
            return
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)

    def _send_bytes(self, piece: bytes | bytearray) -> None:
        out = self._out
        if len(out) == 1 and not self._sent:
            count = self._socket.send(piece)
            if count == len(piece):
                out.popleft()
            else:
                self._sent = count
            return
        pieces: list[bytes | bytearray | memoryview] = [memoryview(piece)[self._sent :]]
        for following in islice(out, 1, PIECES_AT_MOST):
            if not isinstance(following, (bytes, bytearray)):
                break
            pieces.append(following)
        # Pieces that a file slice follows wait for it: one packet rather than a tiny one and the rest.
        self._advance(self._socket.sendmsg(pieces, (), _MORE if len(pieces) < len(out) else 0))

    def _send_slice(self, piece: FileSlice) -> int:
        """Send on from the slice; 0 if the disk has to be waited for or the connection is gone."""
        sent = self._sent
        if sent >= self._warm_until:
            until = sendfile.next_stop(piece, sent)
            if not piece.hot and sendfile.would_block(piece, sent, until):
                self._warm(piece, until)
                return 0
            self._warm_until = until
        count = sendfile.send_slice(self._fd, piece, sent, self._warm_until)
        if count:
            self._advance(count)
        else:
            self.close("a file became shorter than what was promised of it")
        return count

    def _advance(self, count: int) -> None:
        """Drop what has left from the front of the queue."""
        out = self._out
        count += self._sent
        while out:
            piece = out[0]
            size = len(piece) if isinstance(piece, (bytes, bytearray)) else piece.length
            if count < size:
                break
            count -= size
            out.popleft()
            self._warm_until = 0
        self._sent = count

    def _wait_writable(self) -> None:
        if not self._writing:
            self._writing = True
            self._pause_reading()
            self._loop.add_writer(self._fd, self._writable)

    def _writable(self) -> None:
        self.active_at = self._loop.time()
        self._flush()
        if not self._writing and not self.closed and self._warming is None:
            self.resume()

    def _warm(self, piece: FileSlice, until: int) -> None:
        """Let a thread read the cold stretch; the loop serves others meanwhile."""
        if self._writing:
            self._writing = False
            self._loop.remove_writer(self._fd)
        self._pause_reading()
        self._warming = self._loop.run_in_executor(None, sendfile.warm, piece, self._sent, until)
        self._warming.add_done_callback(lambda reading: self._warmed(reading, until))

    def _warmed(self, reading: "asyncio.Future[None]", until: int) -> None:
        self._warming = None
        problem = None if reading.cancelled() else reading.exception()
        if self.closed:
            return
        if problem is not None:
            self.close(f"reading the log failed: {problem}")
            return
        self._warm_until = until  # not probed again: what a thread has read is sent, so there is always progress
        self._flush()
        if not self.closed and not self._writing and self._warming is None:
            self.resume()

    # ── the end ──

    def close(self, reason: str = "") -> None:
        """End the connection; a reason is for the log, none is needed when the peer simply left."""
        if self.closed:
            return
        self.closed = True
        if reason:
            now = self._loop.time()
            self._limits.log.write(logging.INFO, "closing connection from", self.session.peer, reason, now)
        if self._reading:
            self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        for reply in self._replies:
            reply.abandon()
        self._replies.clear()
        self._held = 0
        self._backlog.clear()
        self._out.clear()
        if self._reserved:
            self._release_reserved()
        self._limits.forget(self)
        self._socket.close()
        self._on_closed(self)


def _memory(piece: Outgoing) -> int:
    """Bytes that an outgoing piece keeps in memory: a slice of a file none."""
    return len(piece) if isinstance(piece, (bytes, bytearray)) else 0
