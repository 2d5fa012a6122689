"""A client connection: frames in, responses out in the order of their requests, limits and muting. Knows no APIs.

Requests are handled while they lie in the shared read buffer, and a response goes to the channel in the same turn of
the loop. `muting.py` lists why a connection stops handling requests, and when it resumes.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from itertools import islice
from typing import Any, Final, Protocol

from moldau.base.session import Session
from moldau.base.slices import FileSlice
from moldau.net import file_slices, foreign
from moldau.net.channel import Buffer, Channel
from moldau.net.muting import MuteReason
from moldau.net.reply import BadRequest, Parked, Parts, Reply
from moldau.net.request_limits import RequestLimits
from moldau.wire.frames import MIN_FRAME_SIZE, FrameDecoder

MAX_PENDING_REPLIES: Final = 64  # of one connection: parked ones, and ready ones behind them
MAX_PENDING_BYTES: Final = 1024 * 1024  # of ready replies that wait behind a parked one
MAX_BUFFERS: Final = 64  # given to one send, and replies collected before they are sent
UNRESERVED_BYTES: Final = 64 * 1024  # a request up to this size needs no share of queued.max.request.bytes
LARGE_REPLY: Final = 64 * 1024  # a reply of this size is sent before the next request is handled
MAX_FILE_BYTES_PER_TURN: Final = 1024 * 1024  # sent from files before the loop serves other connections
WORTH_A_TURN: Final = 64 * 1024  # after so much of a file a full channel is tried again before it is waited for

_SOCKET_FULL: Final[int] = MuteReason.SOCKET_FULL.value
_COLD_READ: Final[int] = MuteReason.COLD_READ.value
_REQUEST_RUNNING: Final[int] = MuteReason.REQUEST_RUNNING.value
_REPLIES_PENDING: Final[int] = MuteReason.REPLIES_PENDING.value
_BROKER_BUSY: Final[int] = MuteReason.BROKER_BUSY.value
_THROTTLED: Final[int] = MuteReason.THROTTLED.value
_NO_MEMORY: Final[int] = MuteReason.NO_MEMORY.value
_TURN_OVER: Final[int] = MuteReason.TURN_OVER.value
_AUTHENTICATING: Final[int] = MuteReason.AUTHENTICATING.value
_STOPS_SENDING: Final = _SOCKET_FULL | _COLD_READ | _TURN_OVER
_STOPS_HANDLING: Final = sum(reason.value for reason in MuteReason if reason is not MuteReason.NO_MEMORY)
_STOPS_READING: Final = _STOPS_HANDLING & ~_STOPS_SENDING  # the others stop it when a request comes: `_readable`

Outgoing = bytes | bytearray | FileSlice
Handled = Reply | Coroutine[Any, Any, Reply]


class FrameHandler(Protocol):
    """Serves frames. The frame is borrowed: what outlives the call must be copied."""

    def __call__(self, connection: "Connection", frame: memoryview, /) -> Handled: ...


class Connection:
    __slots__ = (
        "_backlog",
        "_channel",
        "_decoder",
        "_handler",
        "_limits",
        "_loop",
        "_mutes",
        "_now",
        "_on_closed",
        "_out",
        "_pending_bytes",
        "_reading",
        "_receive_into",
        "_replies",
        "_reserved",
        "_running",
        "_send",
        "_sent",
        "_throttle",
        "_warm_until",
        "_warming",
        "_writing",
        "active_at",
        "closed",
        "session",
    )

    def __init__(
        self,
        channel: Channel,
        session: Session,
        limits: RequestLimits,
        handler: FrameHandler,
        on_closed: "Callable[[Connection], None]",
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._now = self._loop.time
        self._channel = channel
        self._receive_into = channel.receive_into
        self._send = channel.send
        self._limits = limits
        self._handler = handler
        self._on_closed = on_closed
        self._decoder = FrameDecoder(limits.scratch, limits.largest_request)
        self._mutes = 0  # a bit for each MuteReason
        self._backlog: deque[bytes] = deque()  # whole frames of one read that were not handled: no other read follows
        self._replies: deque[Parked] = deque()  # parked replies, oldest first, and the ready ones behind them
        self._pending_bytes = 0  # of the ready ones among them
        self._out: deque[Outgoing] = deque()
        self._sent = 0  # bytes of the first outgoing piece that were sent already
        self._warm_until = 0  # how much of the first outgoing piece, a slice, is known to be in the page cache
        self._reserved = 0  # bytes of queued.max.request.bytes that belong to a request of this connection
        self._running: asyncio.Task[None] | None = None
        self._warming: asyncio.Future[None] | None = None
        self._throttle: asyncio.TimerHandle | None = None
        self._reading = False  # asked the channel to call `_readable`
        self._writing = False  # asked the channel to call `_writable`
        self.closed = False
        self.session = session
        self.active_at = 0.0  # the time of the last byte in either direction
        self._resume_reading()

    def hand_over(self, handler: FrameHandler, *, largest: int = 0, smallest: int = MIN_FRAME_SIZE) -> None:
        """Give later frames to another handler, with other bounds of their size. 0: socket.request.max.bytes."""
        self._handler = handler
        self._decoder.largest = largest or self._limits.largest_request
        self._decoder.smallest = smallest

    # ── reading ──

    def _readable(self) -> None:
        if self._mutes & _STOPS_SENDING:
            if not self._mutes & _TURN_OVER:  # that ends by itself in the next turn
                self._pause_reading()
            return
        decoder = self._decoder
        try:
            count = self._receive_into(decoder.receive_buffer())
        except (BlockingIOError, InterruptedError):
            return
        except OSError as problem:
            self.close(f"receive failed: {problem.strerror or problem}")
            return
        if not count:
            self.close("" if decoder.empty else "client disconnected in the middle of a request")
            return
        self.active_at = self._now()
        self._handle_all(decoder.feed(count))
        if decoder.refusal:
            self._refuse(decoder)
        elif decoder.partial > self._reserved and not self.closed:
            self._reserve(decoder.partial - self._reserved)

    def _refuse(self, decoder: FrameDecoder) -> None:
        """Close the connection after a wrong length, and name the protocol that the client speaks instead."""
        protocol = foreign.describe(decoder.refused, self.session)
        self.close(protocol or decoder.refusal, logging.WARNING if protocol else logging.INFO)

    def _handle_all(self, frames: list[memoryview]) -> None:
        limits = self._limits
        for at, frame in enumerate(frames):
            if self._mutes & _STOPS_HANDLING or limits.full:
                self._backlog.extend(bytes(rest) for rest in frames[at:])
                break
            self._handle(frame)
            if len(self._out) > MAX_BUFFERS:
                self._flush()
            if self.closed:
                return
        if self._out and not self._mutes & _STOPS_SENDING:  # else `_writable` or `_warmed` sends
            self._flush()
        if self._reserved and self._decoder.empty and not self._backlog:
            self._release_reserved()
        if (self._mutes & _STOPS_READING or limits.full) and not self.closed:
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
            reply = file_slices.coalesce(reply)
            self._queue_behind(reply) if self._replies else self._out.extend(reply)
        elif isinstance(reply, Parked):
            self._append(reply)
            reply.on_done(self._release_replies)
        else:
            self._limits.task_started()
            self._mutes |= _REQUEST_RUNNING
            self._running = self._loop.create_task(self._run(reply))

    def _queue_behind(self, reply: bytes | Parts) -> None:
        ready = Parked()
        ready.resolve(reply)
        ready.held = len(reply) if isinstance(reply, bytes) else sum(map(_memory, reply))
        self._pending_bytes += ready.held
        self._append(ready)

    def _append(self, reply: Parked) -> None:
        self._replies.append(reply)
        if len(self._replies) >= MAX_PENDING_REPLIES or self._pending_bytes > MAX_PENDING_BYTES:
            self._mutes |= _REPLIES_PENDING

    async def _run(self, work: Coroutine[Any, Any, Reply]) -> None:
        try:
            self._queue(await work)
        except BadRequest as problem:
            self.close(str(problem))
        finally:
            self._running = None
            self._mutes &= ~_REQUEST_RUNNING
            self._limits.task_ended()  # may handle the next request of this connection: its reply is queued behind
        self._release_replies()

    def _queue(self, reply: Reply) -> None:
        if isinstance(reply, Parked):
            if self.closed:
                reply.abandon()
                return
            self._append(reply)
            reply.on_done(self._release_replies)
        elif reply is not None and not self.closed:
            self._queue_behind(reply)

    # ── muting ──

    @property
    def muted(self) -> frozenset[MuteReason]:
        """The reasons for which this connection is muted now."""
        return frozenset(reason for reason in MuteReason if self._mutes & reason.value)

    def throttle(self, ms: float) -> None:
        """Handle no further request for `ms` from now. The longest of several throttles counts.

        A meter calls it while a request that is over a quota is handled. The order does not matter: the response
        leaves at once and names the same time (KIP-219), and what waits is the next request.

        A connection that is throttled in the middle of a large request keeps its share of queued.max.request.bytes, and
        is not closed as stalled.
        """
        if self.closed or ms <= 0:
            return
        until = self._now() + ms / 1000
        if self._throttle is not None:
            if self._throttle.when() >= until:
                return
            self._throttle.cancel()
        self._throttle = self._loop.call_at(until, self._throttle_ended)
        self._mutes |= _THROTTLED
        self._pause_reading()

    def end_throttle(self) -> None:
        """Handle requests again, if it is throttled."""
        if self._throttle is not None:
            self._throttle.cancel()
            self._throttle_ended()

    def _throttle_ended(self) -> None:
        self._throttle = None
        self._mutes &= ~_THROTTLED
        self._resume()

    def hold(self) -> None:
        """Handle no further request until `release`, while its authentication is decided."""
        if not self.closed:
            self._mutes |= _AUTHENTICATING
            self._pause_reading()

    def release(self) -> None:
        if self._mutes & _AUTHENTICATING and not self.closed:
            self._mutes &= ~_AUTHENTICATING
            self._resume()

    def slot_granted(self) -> None:
        """Fewer than queued.max.requests are running again."""
        self._mutes &= ~_BROKER_BUSY
        self._resume()

    def memory_granted(self, size: int) -> None:
        """`size` bytes of queued.max.request.bytes now belong to this connection."""
        self._mutes &= ~_NO_MEMORY
        self._reserved += size
        self._resume()

    def _resume(self) -> None:
        """After a reason was cleared: handle the backlog, then read on, unless there are other reasons."""
        limits = self._limits
        while self._backlog and not (self.closed or self._mutes & _STOPS_HANDLING or limits.full):
            self._handle_all([memoryview(self._backlog.popleft())])
        if self.closed:
            return
        if self._mutes & _STOPS_READING or limits.full:
            self._pause_reading()
        elif not self._mutes:
            self._resume_reading()

    def _pause_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._channel.stop_reading()
        if self._limits.full:
            self._mutes |= _BROKER_BUSY
            self._limits.wait(self)

    def _resume_reading(self) -> None:
        if not self._reading:
            self._reading = True
            self.active_at = self._now()  # while muted it could send nothing
            self._channel.start_reading(self._readable)

    def _reserve(self, size: int) -> None:
        """Take the whole size of a request that came in part from the common memory before more of it is read.

        Small requests take none, so that heartbeats and fetches go on while large ones wait.
        """
        if size <= UNRESERVED_BYTES:
            return
        if self._limits.reserve(self, size):
            self._reserved += size
        else:
            self._mutes |= _NO_MEMORY
            self._pause_reading()
            self._limits.wait_for_memory(self, size)

    def is_stalled(self, since: float) -> bool:
        """Whether nothing came since then although this connection is read from."""
        return self._reading and not self._mutes & _STOPS_SENDING and self.active_at < since

    def _release_reserved(self) -> None:
        reserved, self._reserved = self._reserved, 0
        self._limits.release(self, reserved)

    # ── writing ──

    def _release_replies(self) -> None:
        """Send the replies that are ready, up to the first that is not."""
        if self.closed:
            return
        replies = self._replies
        failure: BadRequest | None = None
        while replies and replies[0].done and failure is None:
            ready = replies.popleft()
            self._pending_bytes -= ready.held
            reply = ready.reply
            if isinstance(reply, bytes):
                self._out.append(reply)
            elif isinstance(reply, BadRequest):
                failure = reply
            elif reply is not None:
                self._out.extend(file_slices.coalesce(reply))
        if len(replies) < MAX_PENDING_REPLIES and self._pending_bytes <= MAX_PENDING_BYTES:
            self._mutes &= ~_REPLIES_PENDING
        if self._out and not self._mutes & _STOPS_SENDING:
            self._flush()
        if failure is not None:
            self.close(str(failure))
        if not self.closed:
            self._resume()

    def _flush(self) -> None:
        """Send until done, until the socket is full, the turn is over, or a slice has to be read from the disk."""
        if self._mutes & _STOPS_SENDING:
            return
        out = self._out
        budget = MAX_FILE_BYTES_PER_TURN
        try:
            while out:
                piece = out[0]
                if isinstance(piece, (bytes, bytearray)):
                    self._send_bytes(piece)
                elif budget <= 0:
                    self._end_turn()
                    return
                elif count := self._send_slice(piece):
                    budget -= count
                else:
                    return
        except (BlockingIOError, InterruptedError):
            self._wait_writable()
        except OSError as problem:
            self.close(f"send failed: {problem.strerror or problem}")

    def _send_bytes(self, piece: bytes | bytearray) -> None:
        out = self._out
        if len(out) == 1 and not self._sent:
            count = self._send(piece)
            if count == len(piece):
                out.popleft()
            else:
                self._sent = count
            return
        buffers: list[Buffer] = [memoryview(piece)[self._sent :]]
        for following in islice(out, 1, MAX_BUFFERS):
            if not isinstance(following, (bytes, bytearray)):
                break
            buffers.append(following)
        self._advance(self._channel.send_buffers(buffers, more=len(buffers) < len(out)))

    def _send_slice(self, piece: FileSlice) -> int:
        """Send on from the slice; 0 if the disk or the client has to be waited for, or the connection is closed."""
        sent = self._sent
        if sent >= self._warm_until:
            until = file_slices.window_end(piece, sent)
            if not piece.hot and file_slices.is_cold(piece, sent, until):
                self._warm(piece, file_slices.cold_window_end(piece, sent))
                return 0
            self._warm_until = until
        asked = self._warm_until - sent
        count = self._channel.send_slice(piece, sent, self._warm_until)
        if not count:
            self.close("a log segment is shorter than the slice of it that was to be sent")
            return 0
        self._advance(count)
        if count < asked:  # the channel is full: another call now would only say so
            if count < WORTH_A_TURN:
                self._wait_writable()
            else:
                self._end_turn()  # a client that reads as fast as this has made room by then
            return 0
        return count

    def _advance(self, count: int) -> None:
        """Remove sent bytes from the front of the queue."""
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
        self._mutes |= _SOCKET_FULL
        if not self._writing:
            self._writing = True
            self._channel.start_writing(self._writable)

    def _writable(self) -> None:
        self._mutes &= ~_SOCKET_FULL
        self._send_on()
        if not self._mutes & _SOCKET_FULL and not self.closed:
            # Not before the next requests were handled: their responses may fill the socket again.
            self._writing = False
            self._channel.stop_writing()

    def _end_turn(self) -> None:
        """Go on when the loop has served the connections that are ready."""
        if self._writing:
            self._mutes |= _SOCKET_FULL  # the channel can take more, and calls `_writable` in the next turn
        else:
            self._mutes |= _TURN_OVER
            self._loop.call_soon(self._next_turn)

    def _next_turn(self) -> None:
        self._mutes &= ~_TURN_OVER
        if not self.closed:
            self._send_on()

    def _send_on(self) -> None:
        """After what kept this connection from sending: send the rest, then handle the next requests."""
        self.active_at = self._now()
        self._flush()
        if not self.closed and not self._mutes & _STOPS_SENDING:
            self._resume()

    def _warm(self, piece: FileSlice, until: int) -> None:
        """Read a cold stretch in a thread; the loop serves other connections meanwhile."""
        self._mutes |= _COLD_READ
        self._warming = self._loop.run_in_executor(None, file_slices.warm, piece, self._sent, until)
        self._warming.add_done_callback(lambda reading: self._warmed(reading, until))

    def _warmed(self, reading: "asyncio.Future[None]", until: int) -> None:
        self._warming = None
        self._mutes &= ~_COLD_READ
        problem = None if reading.cancelled() else reading.exception()
        if self.closed:
            return
        if problem is not None:
            self.close(f"reading the log failed: {problem}")
            return
        self._warm_until = until  # not probed again, so that each read by a thread makes progress
        self._send_on()

    # ── closing ──

    def close(self, reason: str = "", level: int = logging.INFO) -> None:
        """Close the connection and log the reason, if there is one."""
        if self.closed:
            return
        self.closed = True
        if reason:
            self._limits.log.write(level, "Closing connection from", self.session.peer, reason, self._now())
        for reply in self._replies:
            reply.abandon()
        self._replies.clear()
        self._pending_bytes = 0
        self._backlog.clear()
        self._out.clear()
        if self._throttle is not None:
            self._throttle.cancel()
        if self._reserved:
            self._release_reserved()
        self._limits.forget(self)
        self._channel.close()
        self._on_closed(self)


def _memory(piece: Outgoing) -> int:
    """Bytes of memory that an outgoing piece takes: a slice of a file none."""
    return len(piece) if isinstance(piece, (bytes, bytearray)) else 0
