"""Cutting frames: the same frames however the bytes were chunked; hostile lengths; memory only for what arrived."""

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.wire.frames import MIN_FRAME_SIZE, MIN_GROWTH, FrameDecoder

LARGEST = 1 << 20


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


class Stream:
    """A decoder with a scratch buffer, fed like a socket would."""

    def __init__(self, scratch: int = 64, largest: int = LARGEST) -> None:
        self.scratch = memoryview(bytearray(scratch))
        self.decoder = FrameDecoder(self.scratch, largest)
        self.frames: list[bytes] = []

    def receive(self, data: bytes) -> None:
        """Feed one chunk, in as many reads as the room that is offered makes necessary."""
        while data and not self.decoder.refusal:
            room = self.decoder.receive_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            self.frames += [bytes(frame) for frame in self.decoder.feed(count)]
            data = data[count:]


BODIES = st.lists(st.binary(min_size=MIN_FRAME_SIZE, max_size=200), max_size=6)


@given(BODIES, st.data())
def test_frames_do_not_depend_on_chunks(bodies: list[bytes], data: st.DataObject) -> None:
    whole = framed(*bodies)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    stream = Stream()
    for start, stop in zip([0, *cuts], [*cuts, len(whole)], strict=True):
        stream.receive(whole[start:stop])
    assert stream.frames == bodies
    assert stream.decoder.empty
    assert stream.decoder.partial == 0


def test_two_frames_cut_at_every_byte() -> None:
    bodies = [bytes(range(50)), bytes(range(100, 110))]
    whole = framed(*bodies)
    for cut in range(len(whole) + 1):
        stream = Stream()
        stream.receive(whole[:cut])
        assert stream.decoder.empty == (cut in (0, 54, len(whole)))
        stream.receive(whole[cut:])
        assert stream.frames == bodies
    stream = Stream()
    for at in range(len(whole)):
        stream.receive(whole[at : at + 1])
    assert stream.frames == bodies


@given(BODIES, st.sampled_from([0, MIN_FRAME_SIZE - 1, -1, -(2**31), 2**31 - 1, LARGEST + 1]), st.integers(0, 300))
def test_a_wrong_length_spares_the_frames_before_it(bodies: list[bytes], length: int, cut: int) -> None:
    whole = framed(*bodies) + struct.pack(">i", length) + framed(b"never seen")
    stream = Stream()
    stream.receive(whole[:cut])
    stream.receive(whole[cut:])
    assert stream.frames == bodies
    assert str(length) in stream.decoder.refusal


@pytest.mark.parametrize("length", [MIN_FRAME_SIZE, LARGEST])
def test_the_limits_themselves_are_allowed(length: int) -> None:
    stream = Stream(scratch=LARGEST)
    stream.receive(framed(bytes(length)))
    assert [len(frame) for frame in stream.frames] == [length]


def test_other_connections_may_use_the_scratch_buffer_between_reads() -> None:
    body = bytes(range(200))
    for cut in range(1, len(body)):
        stream = Stream(scratch=64)
        whole = framed(body)
        stream.receive(whole[:cut])
        stream.scratch[:] = b"\xff" * 64
        stream.receive(whole[cut:])
        assert stream.frames == [body]


def test_a_read_that_brings_nothing_changes_nothing() -> None:
    """A socket may turn out to have no bytes after room was made for them."""
    whole = framed(bytes(range(200)))
    stream = Stream()
    for at in range(len(whole)):
        stream.decoder.receive_buffer()
        stream.decoder.receive_buffer()
        stream.receive(whole[at : at + 1])
    assert stream.frames == [bytes(range(200))]


def test_a_claimed_length_allocates_nothing() -> None:
    largest = 2**31 - 1
    stream = Stream(largest=largest)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    stream.receive(struct.pack(">i", largest) + b"x")
    assert stream.decoder.partial == largest + 4
    arrived = 5
    for _ in range(8):
        room = len(stream.decoder.receive_buffer())
        stream.decoder.feed(room)
        arrived += room
        now, _ = tracemalloc.get_traced_memory()
        assert now - before <= 2 * arrived + MIN_GROWTH + 4096  # a buffer doubles, and may be copied to do so
    tracemalloc.stop()
