"""Slices of files through connections: fast and slow readers, cold pages, files that end early."""

import asyncio
import hashlib
import os
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.base.slices import FileSlice
from moldau.net import connection, file_slices
from moldau.net.reply import Parts
from support.net.loops import Served, answer, framed, number_of, on_both_loops, request, run, turns, until

pytestmark = on_both_loops

SIZE = 12 * 1024 * 1024 + 17


class File(NamedTuple):
    fd: int


@pytest.fixture
def content() -> bytes:
    return bytes(range(251)) * (SIZE // 251 + 1)


@pytest.fixture
def file(tmp_path: Path, content: bytes) -> File:
    (tmp_path / "data").write_bytes(content)
    return File(os.open(tmp_path / "data", os.O_RDONLY))


def reply_of(number: int, *slices: FileSlice) -> Parts:
    """A frame: the number, then the slices, each followed by a byte."""
    size = 8 + sum(each.length + 1 for each in slices)
    parts: Parts = [framed(bytes(size))[:4] + number.to_bytes(8)]
    for each in slices:
        parts += [each, bytearray(b"|")]
    return parts


def test_slices_arrive_between_the_bytes_around_them(loop_kind: str, file: File, content: bytes) -> None:
    async def main() -> None:
        served = Served()
        served.script.replies[1] = lambda: reply_of(1, FileSlice(file, 10, 100, True), FileSlice(file, 5_000, 7, False))
        await served.peer.send(request(1) + request(2))
        assert await served.peer.frame() == (1).to_bytes(8) + content[10:110] + b"|" + content[5_000:5_007] + b"|"
        assert await served.peer.numbers(1) == [2]
        served.close()

    run(loop_kind, main())


@pytest.mark.parametrize("hot", [True, False])
@pytest.mark.parametrize("turn", [64 * 1024, connection.MAX_FILE_BYTES_PER_TURN])
def test_a_slow_reader_gets_every_byte(
    loop_kind: str, file: File, content: bytes, hot: bool, turn: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_FILE_BYTES_PER_TURN", turn)

    async def main() -> None:
        served, other = Served(), Served()
        served.script.replies[1] = lambda: reply_of(1, FileSlice(file, 3, SIZE - 3, hot))
        await served.peer.send(request(1))
        await turns(50)
        await served.peer.send(request(2))
        await turns(50)
        assert served.script.seen == [1]  # the next request waits until this reply has left
        await other.peer.send(request(9))
        assert await other.peer.numbers(1) == [9]
        frame = await served.peer.frame()
        assert hashlib.sha256(frame[8:-1]).digest() == hashlib.sha256(content[3:SIZE]).digest()
        assert await served.peer.numbers(1) == [2]
        served.close()
        other.close()

    run(loop_kind, main())


def test_cold_slices_are_read_by_a_thread_once_each(
    loop_kind: str, file: File, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where a probe never finds the pages in memory the slice gets out, and nothing is read twice."""
    warmed: list[tuple[int, int]] = []
    real = file_slices.warm

    def warm(slice_: FileSlice, sent: int, until_: int) -> None:
        assert threading.current_thread() is not threading.main_thread()
        warmed.append((sent, until_))
        real(slice_, sent, until_)

    monkeypatch.setattr(file_slices, "is_cold", lambda *_: True)
    monkeypatch.setattr(file_slices, "warm", warm)

    async def main() -> None:
        served = Served()
        served.script.replies[1] = lambda: reply_of(1, FileSlice(file, 0, SIZE, False), FileSlice(file, 9, 11, False))
        await served.peer.send(request(1) + request(2))
        frame = await served.peer.frame()
        assert frame[8:] == content[:SIZE] + b"|" + content[9:20] + b"|"
        assert await served.peer.numbers(1) == [2]
        step = file_slices.COLD_WINDOW
        assert warmed == [(at, min(at + step, SIZE)) for at in range(0, SIZE, step)] + [(0, 11)]
        served.close()

    run(loop_kind, main())


def test_while_a_slice_is_warmed_others_are_served_and_the_peer_may_leave(
    loop_kind: str, file: File, monkeypatch: pytest.MonkeyPatch
) -> None:
    go_on, begun = threading.Event(), threading.Event()

    def warm(*_: object) -> None:
        begun.set()
        go_on.wait(30)
        raise OSError(5, "the disk is broken")

    monkeypatch.setattr(file_slices, "is_cold", lambda slice_, *_: not slice_.hot)
    monkeypatch.setattr(file_slices, "warm", warm)

    async def main() -> None:
        gone, stays = Served(), Served()
        for served in (gone, stays):
            served.script.replies[1] = lambda: reply_of(1, FileSlice(file, 0, 100, False))
            await served.peer.send(request(1) + request(2))
        await until(begun.is_set)
        other = Served()
        await other.peer.send(request(3))
        assert await other.peer.numbers(1) == [3]
        gone.connection.close()
        assert gone.server.fileno() == -1
        reused = Served()  # takes over the descriptor of the one that left while a thread worked for it
        go_on.set()
        assert number_of(await stays.peer.exactly(12)) >> 32 == 8 + 101  # what stood before the slice had gone out
        assert await stays.peer.ended()
        await turns()
        await reused.peer.send(request(4))
        assert await reused.peer.numbers(1) == [4]
        for served in (gone, stays, other, reused):
            served.close()

    run(loop_kind, main())


def test_a_file_that_ends_early_ends_the_connection(loop_kind: str, file: File, content: bytes) -> None:
    async def main() -> None:
        served = Served()
        short = FileSlice(file, len(content) - 10, 100, False)
        served.script.replies[1] = lambda: reply_of(1, short)
        await served.peer.send(request(1))
        assert len(await served.peer.exactly(4 + 8 + 10)) == 22
        assert await served.peer.ended()
        served.peer.close()

    run(loop_kind, main())


def test_slices_keep_their_place_behind_parked_replies(loop_kind: str, file: File, content: bytes) -> None:
    async def main() -> None:
        served = Served()
        first = served.script.park(1)
        served.script.replies[2] = lambda: reply_of(2, FileSlice(file, 0, 5, True))
        await served.peer.send(request(1) + request(2))
        await until(lambda: served.script.seen == [1, 2])
        await asyncio.sleep(0)
        first.resolve(answer(1))
        assert await served.peer.numbers(1) == [1]
        assert await served.peer.frame() == (2).to_bytes(8) + content[:5] + b"|"
        served.close()

    run(loop_kind, main())


def test_a_probe_sees_what_the_page_cache_has(loop_kind: str, file: File) -> None:
    """Just written pages are in memory; probing them never says that sending would wait."""
    whole = FileSlice(file, 0, SIZE, False)
    assert file_slices.window_end(whole, 0) == file_slices.WINDOW
    assert file_slices.window_end(whole, SIZE - 5) == SIZE
    assert not file_slices.is_cold(whole, 0, SIZE)
