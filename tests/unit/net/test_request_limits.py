"""Memory for partial requests: what is bounded, what goes on meanwhile, and clients that hang with memory in hand."""

import logging

import pytest

from moldau.net.connection import UNRESERVED_BYTES
from moldau.net.muting import MuteReason
from moldau.net.request_limits import STALLED_SECONDS
from support.net.loops import (
    ManualLoop,
    Served,
    on_both_loops,
    request,
    request_limits,
    run,
    run_by_hand,
    turns,
    until,
)

LARGE = request(1, padding=500_000)


@on_both_loops
def test_small_requests_in_parts_go_on_while_large_ones_wait(loop_kind: str) -> None:
    async def main() -> None:
        limits = request_limits(memory=1_000)
        holder, waiter, small = Served(limits), Served(limits), Served(limits)
        await holder.peer.send(LARGE[:10])
        await until(lambda: limits.reserved == len(LARGE))
        await waiter.peer.send(LARGE[:10])
        await until(lambda: waiter.connection.muted == {MuteReason.NO_MEMORY})
        one = request(7, padding=UNRESERVED_BYTES - 100)
        await small.peer.send(one[:1_000])
        await turns()
        await small.peer.send(one[1_000:])
        assert await small.peer.numbers(1) == [7]
        assert limits.reserved == len(LARGE)
        for each in (holder, waiter, small):
            each.close()
        assert limits.reserved == 0

    run(loop_kind, main())


@on_both_loops
def test_a_request_above_the_bound_gets_through(loop_kind: str) -> None:
    async def main() -> None:
        limits = request_limits(memory=100_000)
        served = Served(limits)
        for _ in range(3):
            await served.peer.send(LARGE)
            assert await served.peer.numbers(1) == [1]
        assert limits.reserved == 0
        served.close()

    run(loop_kind, main())


def test_a_client_that_hangs_loses_its_memory_to_others(caplog: pytest.LogCaptureFixture) -> None:
    async def main(loop: ManualLoop) -> None:
        limits = request_limits(memory=1_000_000)
        hung, slow, waiter = Served(limits), Served(limits), Served(limits)
        for holder in (hung, slow):
            await holder.peer.send(LARGE[:10])
        await until(lambda: limits.reserved == 2 * len(LARGE))
        loop.pass_time(10 * STALLED_SECONDS)
        await turns()
        assert not hung.connection.closed  # no other request needs its memory
        await waiter.peer.send(LARGE[:10])
        await until(lambda: waiter.connection.muted)
        await slow.peer.send(LARGE[10:20])
        await until(lambda: slow.connection.active_at == loop.now)
        loop.pass_time(STALLED_SECONDS - 0.1)
        await slow.peer.send(LARGE[20:30])
        await until(lambda: slow.connection.active_at == loop.now)
        await turns()
        assert not hung.connection.closed
        loop.pass_time(0.2)
        assert await hung.peer.ended()
        assert "no more of a large request came for 10 s" in caplog.text
        await waiter.peer.send(LARGE[10:])
        assert await waiter.peer.numbers(1) == [1]
        loop.pass_time(10 * STALLED_SECONDS)
        await turns()
        assert not slow.connection.closed  # no request waits any more
        await slow.peer.send(LARGE[30:])
        assert await slow.peer.numbers(1) == [1]
        assert limits.reserved == 0
        for each in (hung, slow, waiter):
            each.close()

    with caplog.at_level(logging.INFO, "moldau.net"):
        run_by_hand(main)


def test_a_request_that_waited_for_memory_has_time_to_go_on() -> None:
    """While it waited it could not be read: that is no stall of its client."""

    async def main(loop: ManualLoop) -> None:
        limits = request_limits(memory=1_000)
        holder, second, third = Served(limits), Served(limits), Served(limits)
        await holder.peer.send(LARGE[:10])
        await until(lambda: limits.reserved)
        for waiter in (second, third):
            await waiter.peer.send(LARGE[:10])
            await until(lambda waiter=waiter: waiter.connection.muted)
        loop.pass_time(STALLED_SECONDS + 1)
        assert await holder.peer.ended()
        await until(lambda: not second.connection.muted)
        loop.pass_time(STALLED_SECONDS - 1)
        await turns()
        assert not second.connection.closed
        await second.peer.send(LARGE[10:])
        assert await second.peer.numbers(1) == [1]
        await third.peer.send(LARGE[10:])
        assert await third.peer.numbers(1) == [1]
        for each in (holder, second, third):
            each.close()

    run_by_hand(main)
