"""Turns of the loop: what one connection sends before others are served, and what waiting changes at its channel."""

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.base.slices import FileSlice
from moldau.net.channel import PlainChannel
from moldau.net.connection import MAX_FILE_BYTES_PER_TURN, WORTH_A_TURN
from moldau.net.muting import MuteReason
from moldau.net.reply import Parts
from support.net.loops import Served, answer, framed, on_both_loops, request, run, turns, until

pytestmark = on_both_loops

SHARES = 8
LARGE = 2_000_000  # more than the sockets of a test hold


class File(NamedTuple):
    fd: int


@pytest.fixture
def file(tmp_path: Path) -> Iterator[File]:
    (tmp_path / "data").write_bytes(bytes(MAX_FILE_BYTES_PER_TURN))
    fd = os.open(tmp_path / "data", os.O_RDONLY)
    yield File(fd)
    os.close(fd)


class Counting(PlainChannel):
    """Counts how often the loop has to change what it waits for."""

    __slots__ = ("changes",)

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(sock, loop)
        self.changes: Counter[str] = Counter()

    def start_reading(self, ready: Callable[[], None]) -> None:
        self.changes["start reading"] += 1
        super().start_reading(ready)

    def stop_reading(self) -> None:
        self.changes["stop reading"] += 1
        super().stop_reading()

    def start_writing(self, ready: Callable[[], None]) -> None:
        self.changes["start writing"] += 1
        super().start_writing(ready)

    def stop_writing(self) -> None:
        self.changes["stop writing"] += 1
        super().stop_writing()


class Bottomless(Counting):
    """Takes every slice at once, as if its client read faster than the broker sends."""

    __slots__ = ("taken",)

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(sock, loop)
        self.taken = 0

    def send_slice(self, slice_: FileSlice, sent: int, until: int) -> int:
        self.taken += until - sent
        return until - sent


class Narrow(Counting):
    """Counts itself full after so many bytes of a slice, and can take more in the next turn."""

    __slots__ = ("taken", "width")

    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(sock, loop)
        self.width = WORTH_A_TURN
        self.taken = 0

    def send_slice(self, slice_: FileSlice, sent: int, until: int) -> int:
        count = min(self.width, until - sent)
        self.taken += count
        return count


def bottomless() -> tuple[Served, Bottomless]:
    served = Served(channel_of=Bottomless)
    assert isinstance(served.connection._channel, Bottomless)
    return served, served.connection._channel


def counting() -> tuple[Served, Counter[str]]:
    served = Served(channel_of=Counting)
    assert isinstance(served.connection._channel, Counting)
    return served, served.connection._channel.changes


async def turn_over(served: Served) -> None:
    """Look after each turn of the loop: a connection has few."""
    while MuteReason.TURN_OVER not in served.connection.muted:  # noqa: ASYNC110 - there is no event to wait for
        await asyncio.sleep(0)


def shares(file: File, count: int) -> Parts:
    """A reply that takes so many turns."""
    parts: Parts = [framed(bytes(8))]
    for _ in range(count):
        parts.append(FileSlice(file, 0, MAX_FILE_BYTES_PER_TURN, True))
    return parts


def test_others_are_served_between_the_turns_of_a_connection_that_could_always_send(loop_kind: str, file: File) -> None:
    async def main() -> None:
        greedy, channel = bottomless()
        modest = Served()
        taken: list[int] = []

        def begin() -> Parts:
            assert modest.peer.send_some(request(2))  # from now on the other one is ready
            return shares(file, SHARES)

        def note() -> bytes:
            taken.append(channel.taken)
            return answer(2)

        greedy.script.replies[1] = begin
        modest.script.replies[2] = note
        await greedy.peer.send(request(1))
        assert await modest.peer.numbers(1) == [2]
        await until(lambda: channel.taken == SHARES * MAX_FILE_BYTES_PER_TURN)
        assert taken[0] <= 2 * MAX_FILE_BYTES_PER_TURN
        greedy.close()
        modest.close()

    run(loop_kind, main())


def test_connections_that_could_always_send_take_turns(loop_kind: str, file: File) -> None:
    async def main() -> None:
        pairs = [bottomless() for _ in range(3)]
        for served, _ in pairs:
            served.script.replies[1] = lambda: shares(file, SHARES)
            await served.peer.send(request(1))
        apart = []
        while any(channel.taken < SHARES * MAX_FILE_BYTES_PER_TURN for _, channel in pairs):
            await asyncio.sleep(0)
            if all(channel.taken for _, channel in pairs):
                apart.append(max(channel.taken for _, channel in pairs) - min(channel.taken for _, channel in pairs))
        assert max(apart) <= 3 * MAX_FILE_BYTES_PER_TURN
        for served, _ in pairs:
            served.close()

    run(loop_kind, main())


def test_the_end_of_a_turn_changes_nothing_at_the_channel(loop_kind: str, file: File) -> None:
    async def main() -> None:
        served, channel = bottomless()
        served.script.replies[1] = lambda: shares(file, SHARES)
        await served.peer.send(request(1) + request(2))
        await until(lambda: served.script.seen == [1, 2])
        await served.peer.send(request(3))
        await until(lambda: served.script.seen == [1, 2, 3])
        assert channel.changes == {"start reading": 1}
        served.close()

    run(loop_kind, main())


@pytest.mark.parametrize(("width", "waits"), [(WORTH_A_TURN, False), (WORTH_A_TURN - 1, True)])
def test_a_channel_that_took_much_before_it_was_full_is_tried_again_before_it_is_waited_for(
    loop_kind: str, file: File, width: int, waits: bool
) -> None:
    async def main() -> None:
        served = Served(channel_of=Narrow)
        channel = served.connection._channel
        assert isinstance(channel, Narrow)
        channel.width = width
        served.script.replies[1] = lambda: shares(file, 1)
        await served.peer.send(request(1))
        await until(lambda: channel.taken == MAX_FILE_BYTES_PER_TURN)
        await until(lambda: not served.connection.muted)
        assert channel.changes["start writing"] == channel.changes["stop writing"] == waits
        served.close()

    run(loop_kind, main())


def test_a_channel_that_is_still_full_in_the_next_turn_is_waited_for(loop_kind: str, tmp_path: Path) -> None:
    async def main() -> None:
        (tmp_path / "large").write_bytes(bytes(LARGE))
        file = File(os.open(tmp_path / "large", os.O_RDONLY))
        served, changes = counting()
        served.script.replies[1] = lambda: [framed(bytes(8 + LARGE))[:12], FileSlice(file, 0, LARGE, True)]
        await served.peer.send(request(1))
        await until(lambda: changes["start writing"])
        await turns()
        assert served.connection.muted == {MuteReason.SOCKET_FULL}
        assert len(await served.peer.frame()) == 8 + LARGE
        await until(lambda: changes["stop writing"])
        served.close()
        os.close(file.fd)

    run(loop_kind, main())


def test_requests_wait_while_the_turn_is_over(loop_kind: str, file: File) -> None:
    async def main() -> None:
        served, channel = bottomless()
        seen: list[int] = []
        served.script.replies[1] = lambda: shares(file, SHARES)
        served.script.replies[2] = lambda: seen.append(channel.taken) or answer(2)  # type: ignore[func-returns-value]
        await served.peer.send(request(1))
        await turn_over(served)
        assert served.peer.send_some(request(2))
        await until(lambda: seen)
        assert seen == [SHARES * MAX_FILE_BYTES_PER_TURN]
        served.close()

    run(loop_kind, main())


def test_a_connection_may_end_while_its_turn_is_over(loop_kind: str, file: File) -> None:
    async def main() -> None:
        served, channel = bottomless()
        served.script.replies[1] = lambda: shares(file, SHARES)
        await served.peer.send(request(1))
        await turn_over(served)
        taken = channel.taken
        served.connection.close()
        await turns()
        assert channel.taken == taken
        served.close()

    run(loop_kind, main())


def test_a_client_that_asks_again_only_after_its_response_is_read_from_all_the_time(loop_kind: str) -> None:
    async def main() -> None:
        served, changes = counting()
        for number in range(3):
            served.script.replies[number] = lambda number=number: answer(number, LARGE)  # type: ignore[misc]
            await served.peer.send(request(number))
            await until(lambda: MuteReason.SOCKET_FULL in served.connection.muted)
            assert await served.peer.numbers(1) == [number]
        await turns()
        assert changes == {"start reading": 1, "start writing": 3, "stop writing": 3}
        served.close()

    run(loop_kind, main())


def test_a_request_that_comes_while_the_socket_is_full_stops_the_reading_until_it_is_not(loop_kind: str) -> None:
    async def main() -> None:
        served, changes = counting()
        served.script.replies[1] = lambda: answer(1, LARGE)
        await served.peer.send(request(1))
        await until(lambda: MuteReason.SOCKET_FULL in served.connection.muted)
        await served.peer.send(request(2))
        await until(lambda: changes["stop reading"])
        await served.peer.send(request(3))
        await turns()
        assert served.script.seen == [1]
        assert await served.peer.numbers(3) == [1, 2, 3]
        assert changes == {"start reading": 2, "stop reading": 1, "start writing": 1, "stop writing": 1}
        served.close()

    run(loop_kind, main())


def test_responses_that_fill_the_socket_one_after_the_other_wait_with_one_change(loop_kind: str) -> None:
    """The requests came with one read; the second response fills the socket before waiting for the first one ends."""

    async def main() -> None:
        served, changes = counting()
        for number in (1, 2, 3):
            served.script.replies[number] = lambda number=number: answer(number, LARGE)  # type: ignore[misc]
        await served.peer.send(request(1) + request(2) + request(3))
        assert await served.peer.numbers(3) == [1, 2, 3]
        await turns()
        assert changes == {"start reading": 1, "start writing": 1, "stop writing": 1}
        served.close()

    run(loop_kind, main())


def test_a_connection_that_cannot_send_is_not_stalled(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        served.script.replies[1] = lambda: answer(1, LARGE)
        later = asyncio.get_running_loop().time() + 1_000
        assert served.connection.is_stalled(later)
        await served.peer.send(request(1))
        await until(lambda: MuteReason.SOCKET_FULL in served.connection.muted)
        assert not served.connection.is_stalled(later)
        assert await served.peer.numbers(1) == [1]
        await until(lambda: not served.connection.muted)
        assert served.connection.is_stalled(later)
        served.close()

    run(loop_kind, main())
