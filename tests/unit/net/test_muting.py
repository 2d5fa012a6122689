"""Why a connection is muted: each reason is set, named, and cleared so that the next request is handled."""

import os
import threading
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.base.slices import FileSlice
from moldau.net import file_slices
from moldau.net.connection import MAX_PENDING_REPLIES
from moldau.net.muting import MuteReason
from support.net.loops import (
    ManualLoop,
    Served,
    answer,
    framed,
    number_of,
    on_both_loops,
    request,
    request_limits,
    run,
    run_by_hand,
    turns,
    until,
)


async def muted_for(served: Served, *reasons: MuteReason) -> None:
    await until(lambda: served.connection.muted == set(reasons))
    await turns()
    assert served.connection.muted == set(reasons)


async def resumes(served: Served, *expected: int) -> None:
    """The answers come, among them those to a request that waited; afterwards nothing mutes the connection."""
    assert await served.peer.numbers(len(expected)) == list(expected)
    await until(lambda: not served.connection.muted)
    await served.peer.send(request(1_000))
    assert await served.peer.numbers(1) == [1_000]
    served.close()


@on_both_loops
def test_a_client_that_does_not_read_fills_its_socket(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        served.script.replies[1] = lambda: answer(1, padding=5_000_000)
        await served.peer.send(request(1))
        await muted_for(served, MuteReason.SOCKET_FULL)
        await served.peer.send(request(2))
        await resumes(served, 1, 2)

    run(loop_kind, main())


class File(NamedTuple):
    fd: int


@on_both_loops
def test_a_cold_slice_is_read_by_a_thread(loop_kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data").write_bytes(bytes(100))
    go_on = threading.Event()
    monkeypatch.setattr(file_slices, "is_cold", lambda *_: True)
    monkeypatch.setattr(file_slices, "warm", lambda *_: go_on.wait(30))

    async def main() -> None:
        served = Served()
        file = File(os.open(tmp_path / "data", os.O_RDONLY))
        served.script.replies[1] = lambda: [framed(bytes(108))[:4] + (1).to_bytes(8), FileSlice(file, 0, 100, False)]
        await served.peer.send(request(1) + request(2))
        await muted_for(served, MuteReason.COLD_READ)
        go_on.set()
        await resumes(served, 1, 2)
        os.close(file.fd)

    run(loop_kind, main())


@on_both_loops
def test_a_request_runs_as_a_task(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        go_on = served.script.work(1)
        await served.peer.send(request(1) + request(2))
        await muted_for(served, MuteReason.REQUEST_RUNNING)
        go_on.set()
        await resumes(served, 1, 2)

    run(loop_kind, main())


@on_both_loops
def test_too_many_replies_are_pending(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        parked = [served.script.park(number) for number in range(MAX_PENDING_REPLIES)]
        await served.peer.send(b"".join(map(request, range(MAX_PENDING_REPLIES + 1))))
        await muted_for(served, MuteReason.REPLIES_PENDING)
        for number, each in enumerate(parked):
            each.resolve(answer(number))
        await resumes(served, *range(MAX_PENDING_REPLIES + 1))

    run(loop_kind, main())


@on_both_loops
def test_the_broker_is_busy(loop_kind: str) -> None:
    async def main() -> None:
        limits = request_limits(requests=1)
        busy, served = Served(limits), Served(limits)
        go_on = busy.script.work(1)
        await busy.peer.send(request(1))
        await muted_for(busy, MuteReason.REQUEST_RUNNING, MuteReason.BROKER_BUSY)
        await served.peer.send(request(1) + request(2))
        await muted_for(served, MuteReason.BROKER_BUSY)
        go_on.set()
        await resumes(served, 1, 2)
        await resumes(busy, 1)

    run(loop_kind, main())


@on_both_loops
def test_no_memory_is_left_and_what_came_whole_is_handled(loop_kind: str) -> None:
    async def main() -> None:
        limits = request_limits(memory=1_000)
        served, holder = Served(limits), Served(limits)
        go_on = served.script.work(1)
        assert limits.reserve(holder.connection, 500_000)
        large = request(3, padding=200_000)
        await served.peer.send(request(1) + request(2) + large[:100])
        await muted_for(served, MuteReason.REQUEST_RUNNING, MuteReason.NO_MEMORY)
        go_on.set()
        assert await served.peer.numbers(2) == [1, 2]
        await muted_for(served, MuteReason.NO_MEMORY)
        limits.release(holder.connection, 500_000)
        await served.peer.send(large[100:])
        await resumes(served, 3)
        assert limits.reserved == 0
        holder.close()

    run(loop_kind, main())


def throttling(served: Served, number: int, ms: float) -> None:
    """The request's handler throttles its connection, and answers."""

    def reply() -> bytes:
        served.connection.throttle(ms)
        return answer(number)

    served.script.replies[number] = reply


@on_both_loops
def test_a_throttled_connection_goes_on_by_itself(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        throttling(served, 1, 5)
        await served.peer.send(request(1) + request(2))
        await resumes(served, 1, 2)

    run(loop_kind, main())


def test_a_throttle_lasts_until_its_end_and_the_reply_does_not_wait() -> None:
    async def main(loop: ManualLoop) -> None:
        served, other = Served(), Served()
        throttling(served, 1, 1_000)
        await served.peer.send(request(1) + request(2))
        assert await served.peer.numbers(1) == [1]
        await served.peer.send(request(3))
        loop.pass_time(0.999)
        await muted_for(served, MuteReason.THROTTLED)
        assert served.script.seen == [1]
        await other.peer.send(request(7))
        assert await other.peer.numbers(1) == [7]
        loop.pass_time(0.002)
        await resumes(served, 2, 3)
        other.close()

    run_by_hand(main)


def test_the_longest_of_several_throttles_counts() -> None:
    async def main(loop: ManualLoop) -> None:
        served = Served()
        for ms in (500, 2_000, 1_000, 0, -1):
            served.connection.throttle(ms)
        await served.peer.send(request(1))
        loop.pass_time(1.999)
        await muted_for(served, MuteReason.THROTTLED)
        loop.pass_time(0.002)
        await resumes(served, 1)

    run_by_hand(main)


def test_parked_replies_leave_a_throttled_connection() -> None:
    async def main(loop: ManualLoop) -> None:
        served = Served()
        parked = served.script.park(1)
        throttling(served, 2, 1_000)
        await served.peer.send(request(1) + request(2) + request(3))
        await muted_for(served, MuteReason.THROTTLED)
        parked.resolve(answer(1))
        assert await served.peer.numbers(2) == [1, 2]
        await muted_for(served, MuteReason.THROTTLED)
        loop.pass_time(1.001)
        await resumes(served, 3)

    run_by_hand(main)


def test_a_throttle_can_be_ended_early() -> None:
    """As when the quota is removed."""

    async def main(loop: ManualLoop) -> None:
        served = Served()
        served.connection.end_throttle()  # which is none yet
        throttling(served, 1, 1_000_000)
        await served.peer.send(request(1) + request(2))
        assert await served.peer.numbers(1) == [1]
        await muted_for(served, MuteReason.THROTTLED)
        served.connection.end_throttle()
        await resumes(served, 2)

    run_by_hand(main)


def test_a_throttle_ends_with_its_connection() -> None:
    async def main(loop: ManualLoop) -> None:
        served = Served()
        served.connection.throttle(1_000)
        served.close()
        served.connection.throttle(5_000)
        reused = Served()  # takes over the descriptor
        loop.pass_time(10)
        await turns()
        await reused.peer.send(request(1))
        assert number_of(await reused.peer.frame()) == 1
        reused.close()

    run_by_hand(main)
