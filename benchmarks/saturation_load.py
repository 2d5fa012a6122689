"""Load that saturates a broker: frames made beforehand, sent pipelined by one process. Knows no measure and no broker.

A tape is what one connection sends again and again: frames of equal size, numbered by their correlation ids, and what
the answer to each must say. Every answer is compared with that, many at once; bulk behind its head is discarded in the
kernel. So the sender costs a fraction of what a broker does.

Where answers are large the sender never sleeps: the kernel wakes a sleeping reader at the expense of the broker that
sends, and the more often, the slower this broker is. Spinning is counted apart from the sender's work.
"""

import abc
import itertools
import select
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from struct import Struct

from benchmarks.frames import RefusedError

# In flight per connection: five requests, as clients have them, or as many as fit into this if they are small, as of a
# client that pipelines. What counts is the larger one of request and answer.
IN_FLIGHT = 5
IN_FLIGHT_BYTES = 64 * 1024
TAPE_FRAMES = 16  # at least; few, so that large frames stay in the cache of the sender's core
STALL_S = 30.0  # without any answer
POLL_S = 1.0
READ_SIZE = 1 << 20
TLS_RECORD_SIZE = 1 << 14
CORRELATION_AT = 8  # in a frame: behind size, key and version
ERROR = "error"  # how names of fields with error codes begin
WAIT = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)  # a socket cannot go on now


@dataclass(frozen=True, slots=True)
class Shape:
    """What is known of every answer to a sort of request: its size, and where its fields are.

    `head` unpacks the first bytes, size and correlation id first. Where answers are small it covers all of them.
    """

    api: str
    head: Struct
    names: tuple[str, ...]
    size: int  # of a whole answer, with the four bytes that say it

    @property
    def is_whole(self) -> bool:
        return self.head.size == self.size

    def refusal(self, answer: bytes, expected: tuple[object, ...]) -> RefusedError:
        """What is wrong with an answer, of which only the first bytes may be known."""
        found = self.head.unpack(answer[: self.head.size].ljust(self.head.size, b"\0"))
        wrong = [
            (name, got, want) for name, got, want in zip(self.names, found, expected, strict=True) if got != want
        ]  # fmt: skip
        error = next((got for name, got, _ in wrong if name.startswith(ERROR)), -1)
        told = ", ".join(f"{name} {got!r} instead of {want!r}" for name, got, want in wrong)
        return RefusedError(f"unexpected answer to {self.api}: {told}; it begins with {answer[:96].hex()}", int(error))


@dataclass(slots=True)
class Tape:
    """Frames of equal size for one connection, and the fields of their answers."""

    shape: Shape
    frames: bytearray
    size: int  # of one frame
    expected: list[tuple[object, ...]]  # of two passes, so that every slice of up to one pass is in one piece
    window: int
    renew: Callable[[bytearray], None] | None  # called before the tape is sent again

    @property
    def count(self) -> int:
        return len(self.frames) // self.size


def window_of(request_size: int, answer_size: int) -> int:
    return max(IN_FLIGHT, IN_FLIGHT_BYTES // max(request_size, answer_size))


def tape(
    shape: Shape,
    make: Callable[[int], bytes],
    fields: Sequence[object],
    *,
    frames: int = TAPE_FRAMES,
    renew: Callable[[bytearray], None] | None = None,
) -> Tape:
    """A tape of `make(0)`, `make(1)` … with at least so many frames; `fields` are those behind the correlation id."""
    size = len(make(0))
    window = window_of(size, shape.size)
    count = max(frames, -(-window // frames) * frames)  # whole cycles of what `make` may repeat
    joined = bytearray().join(make(number) for number in range(count))
    if len(joined) != count * size:
        raise ValueError(f"the frames of a tape for {shape.api} differ in size")
    for number in range(count):
        at = number * size + CORRELATION_AT
        joined[at : at + 4] = number.to_bytes(4, "big")
    once: list[tuple[object, ...]] = [(shape.size - 4, number, *fields) for number in range(count)]
    return Tape(shape, joined, size, once * 2, window, renew)


class Stream(abc.ABC):
    """One connection that plays a tape. Subclasses read the answers."""

    def __init__(self, address: tuple[str, int], tape: Tape, tls: ssl.SSLContext | None = None) -> None:
        plain = socket.create_connection(address)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = plain if tls is None else tls.wrap_socket(plain)
        self.socket.setblocking(False)
        self.tape = tape
        self.answered = 0
        self.sent = 0  # bytes
        self.blocked = False
        self._view = memoryview(tape.frames)
        self._limit: int | None = None  # in bytes, once no further frames are to begin

    @property
    def is_done(self) -> bool:
        """All frames up to the limit were sent and answered."""
        return self._limit is not None and self.answered * self.tape.size >= self._limit

    def finish(self) -> None:
        """Begin no further frame."""
        self._limit = -(-self.sent // self.tape.size) * self.tape.size

    def allow(self, frames: int) -> None:
        """Begin so many further frames than were answered."""
        self._limit = (self.answered + frames) * self.tape.size

    def send(self) -> None:
        tape, length = self.tape, len(self._view)
        allowed = (self.answered + tape.window) * tape.size
        if self._limit is not None:
            allowed = min(allowed, self._limit)
        self.blocked = False
        while self.sent < allowed:
            start = self.sent % length
            if start == 0 and self.sent and tape.renew is not None:
                tape.renew(tape.frames)
            try:
                self.sent += self.socket.send(self._view[start : min(start + allowed - self.sent, length)])
            except WAIT:
                self.blocked = True
                return

    @abc.abstractmethod
    def receive(self) -> None:
        """Read what has arrived and check it."""

    def _read(self, into: memoryview, most: int, flags: int = 0) -> int:
        """Zero if nothing has arrived."""
        try:
            count = self.socket.recv_into(into, most, flags)
        except WAIT:
            return 0
        if count == 0:
            raise ConnectionError("the broker closed the connection")
        return count

    def _refuse(self, answer: bytes, number: int) -> RefusedError:
        return self.tape.shape.refusal(answer, self.tape.expected[number % self.tape.count])


class SmallAnswers(Stream):
    """Answers of constant size, compared as a whole, all at once that have arrived."""

    def __init__(self, address: tuple[str, int], tape: Tape, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(address, tape, tls)
        # Behind a part of an answer a TLS record fits: none stays in the socket's own buffer, of which no poll tells.
        self._buffer = memoryview(bytearray(max(tape.window * tape.shape.size, tape.shape.size + TLS_RECORD_SIZE)))
        self._held = 0  # bytes of an answer that is not complete

    def receive(self) -> None:
        shape, buffer = self.tape.shape, self._buffer
        held = self._held + self._read(buffer[self._held :], 0)
        whole, rest = divmod(held, shape.size)
        first = self.answered % self.tape.count
        end = whole * shape.size
        if list(shape.head.iter_unpack(buffer[:end])) != self.tape.expected[first : first + whole]:
            self._explain(whole)
        self.answered += whole
        if rest:
            self._look_at_the_rest(bytes(buffer[end:held]))
            buffer[:rest] = buffer[end:held]
        self._held = rest

    def _explain(self, whole: int) -> None:
        size = self.tape.shape.size
        for number in range(whole):
            answer = bytes(self._buffer[number * size : (number + 1) * size])
            expected = self.tape.expected[(self.answered + number) % self.tape.count]
            if self.tape.shape.head.unpack(answer) != expected:
                raise self._refuse(answer, self.answered + number)

    def _look_at_the_rest(self, rest: bytes) -> None:
        """An answer of another size may never fill up what is expected."""
        size = int.from_bytes(rest[:4], "big") + 4
        if len(rest) >= 4 and size != self.tape.shape.size and len(rest) >= size:
            raise self._refuse(rest[:size], self.answered)


class LargeAnswers(Stream):
    """Answers of which the head is compared; what follows is counted, and discarded in the kernel."""

    def __init__(self, address: tuple[str, int], tape: Tape) -> None:
        super().__init__(address, tape)
        self._head = memoryview(bytearray(tape.shape.head.size))
        self._scratch = memoryview(bytearray(READ_SIZE))
        self._held = 0
        self._left = 0  # bytes to discard

    def receive(self) -> None:
        while True:
            if self._left:
                # TCP does not copy truncated bytes at all.
                count = self._read(self._scratch, min(self._left, READ_SIZE), socket.MSG_TRUNC)
                self._left -= count
                if count and not self._left:
                    self.answered += 1
            else:
                count = self._read(self._head[self._held :], 0)
                self._held += count
                if count:
                    self._look_at_the_head()
            if not count:
                return

    def _look_at_the_head(self) -> None:
        shape, head = self.tape.shape, bytes(self._head[: self._held])
        whole = int.from_bytes(head[:4], "big") + 4 if len(head) >= 4 else shape.size
        if len(head) < min(whole, shape.head.size):
            return
        if whole < shape.head.size or shape.head.unpack(head) != self.tape.expected[self.answered % self.tape.count]:
            raise self._refuse(head, self.answered)
        self._held, self._left = 0, shape.size - shape.head.size


@dataclass(frozen=True, slots=True)
class Played:
    """One stretch of load."""

    seconds: float
    answers: int
    sender_cpu_s: float  # without spinning
    spun_s: float  # CPU of the sender while it found nothing to read or send


@dataclass(slots=True)
class Load:
    """Some tapes, each on a connection of its own. Over TLS only small answers are read."""

    address: tuple[str, int]
    tapes: Sequence[Tape]
    may_spin: bool = True
    tls: ssl.SSLContext | None = None
    _streams: dict[int, Stream] = field(default_factory=dict)
    _poll: select.epoll = field(default_factory=select.epoll)
    _waiting: set[int] = field(default_factory=set)  # connections that wait until they can send
    _spins: bool = False  # polls without sleeping
    _spun_s: float = 0.0

    def __enter__(self) -> "Load":
        self._spins = self.may_spin and any(not each.shape.is_whole for each in self.tapes)
        for each in self.tapes:
            stream = self._stream(each)
            self._streams[stream.socket.fileno()] = stream
            self._poll.register(stream.socket, select.EPOLLIN)
        return self

    def _stream(self, tape: Tape) -> Stream:
        if tape.shape.is_whole:
            return SmallAnswers(self.address, tape, self.tls)
        if self.tls is not None:
            raise ValueError("large answers are not read over TLS: their bulk cannot be discarded in the kernel")
        return LargeAnswers(self.address, tape)

    def __exit__(self, *_: object) -> None:
        self._poll.close()
        for stream in self._streams.values():
            stream.socket.close()

    @property
    def answers(self) -> int:
        return sum(stream.answered for stream in self._streams.values())

    @property
    def sent_bytes(self) -> int:
        return sum(stream.sent for stream in self._streams.values())

    def play(self, seconds: float, most_bytes: int) -> Played:
        """Send for so long, or until so many bytes were sent since the load began."""
        answers, spun, cpu, began = self.answers, self._spun_s, time.process_time(), time.perf_counter()
        for number, stream in self._streams.items():
            self._send(number, stream)
        deadline = began + seconds
        for step in itertools.count():
            self._step()
            if time.perf_counter() >= deadline or (step % 16 == 0 and self.sent_bytes >= most_bytes):
                break
        seconds, spun = time.perf_counter() - began, self._spun_s - spun
        return Played(seconds, self.answers - answers, time.process_time() - cpu - spun, spun)

    def drain(self) -> int:
        """Wait for the answers that are still due; how many there were in all."""
        for stream in self._streams.values():
            stream.finish()
        self._complete()
        return self.answers

    def answer(self, requests: int) -> None:
        """Send so many requests on each connection, and wait for all their answers."""
        for stream in self._streams.values():
            stream.allow(requests)
        self._complete()

    def _complete(self) -> None:
        for number, stream in self._streams.items():
            self._send(number, stream)
        while not all(stream.is_done for stream in self._streams.values()):
            self._step()

    def _step(self) -> None:
        for number, event in (self._spins and self._poll.poll(0)) or self._await():
            stream = self._streams[number]
            if event & ~select.EPOLLOUT:
                stream.receive()
            self._send(number, stream)

    def _await(self) -> list[tuple[int, int]]:
        """The next events, if there are none now."""
        cpu, began = time.thread_time(), time.perf_counter()
        while not (ready := self._poll.poll(0 if self._spins else POLL_S)):
            if time.perf_counter() - began > STALL_S:
                raise TimeoutError(f"no answer for {STALL_S:.0f} s")
        if self._spins:
            self._spun_s += time.thread_time() - cpu
        return ready

    def _send(self, number: int, stream: Stream) -> None:
        stream.send()
        if stream.blocked != (number in self._waiting):
            if stream.blocked:
                self._waiting.add(number)
            else:
                self._waiting.remove(number)
            self._poll.modify(number, select.EPOLLIN | (select.EPOLLOUT if stream.blocked else 0))
