"""Connections over real TCP on both loops: order of replies, muting, limits, and what a close leaves behind."""

import asyncio
import logging
import socket
import struct
from collections.abc import Sequence

import pytest

from moldau.net.channel import Buffer, PlainChannel
from moldau.net.connection import LARGE_REPLY, MAX_BUFFERS, MAX_PENDING_BYTES, MAX_PENDING_REPLIES, Connection
from moldau.net.muting import MuteReason
from moldau.net.reply import BadRequest, Parked
from support.net.loops import (
    Served,
    answer,
    framed,
    number_of,
    on_both_loops,
    request,
    request_limits,
    run,
    turns,
    until,
)

pytestmark = on_both_loops


def requests(*numbers: int) -> bytes:
    return b"".join(request(number) for number in numbers)


def test_requests_are_answered_one_by_one_and_in_bulk(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        for number in range(3):
            await served.peer.send(request(number))
            assert await served.peer.numbers(1) == [number]
        await served.peer.send(requests(*range(10_000)))
        assert await served.peer.numbers(10_000) == list(range(10_000))
        served.close()

    run(loop_kind, main())


def test_a_request_in_single_bytes_is_one_request(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        for byte in request(1, padding=20) + request(2):
            await served.peer.send(bytes([byte]))
            await turns(2)
        assert await served.peer.numbers(2) == [1, 2]
        assert served.script.seen == [1, 2]
        served.close()

    run(loop_kind, main())


def test_a_request_larger_than_the_read_buffer_arrives_whole(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        bodies: list[bytes] = []
        script = served.script
        script.replies[1] = lambda: bodies.append(b"called") or answer(1)  # type: ignore[func-returns-value]
        await served.peer.send(request(0) + request(1, padding=900_000) + request(2))
        assert await served.peer.numbers(3) == [0, 1, 2]
        assert bodies == [b"called"]
        served.close()

    run(loop_kind, main())


def test_replies_keep_the_order_of_requests_around_parked_ones(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        second, fourth = served.script.park(2), served.script.park(4)
        await served.peer.send(requests(1, 2, 3, 4, 5))
        assert await served.peer.numbers(1) == [1]
        await until(lambda: served.script.seen == [1, 2, 3, 4, 5])
        fourth.resolve(answer(4))
        assert await served.peer.silent()
        second.resolve([answer(2)])
        assert await served.peer.numbers(4) == [2, 3, 4, 5]
        served.close()

    run(loop_kind, main())


def test_a_parked_reply_may_turn_out_to_be_none(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        first = served.script.park(1)
        await served.peer.send(requests(1, 2))
        await until(lambda: served.script.seen == [1, 2])
        first.resolve(None)
        assert await served.peer.numbers(1) == [2]
        served.close()

    run(loop_kind, main())


def test_a_parked_reply_may_end_the_connection_after_what_went_before(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        first, second = served.script.park(1), served.script.park(2)
        await served.peer.send(requests(1, 2, 3))
        await until(lambda: served.script.seen == [1, 2, 3])
        second.resolve(BadRequest("no"))
        assert not served.connection.closed
        first.resolve(answer(1))
        assert await served.peer.numbers(1) == [1]
        assert await served.peer.ended()
        assert served.gone == [served.connection]
        served.peer.close()

    run(loop_kind, main())


def test_while_a_request_runs_as_a_task_the_next_one_waits(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        go_on = served.script.work(1)
        await served.peer.send(requests(1, 2, 3))
        await until(lambda: served.script.seen)
        await turns()
        assert served.script.seen == [1]
        await served.peer.send(request(4))
        go_on.set()
        assert await served.peer.numbers(4) == [1, 2, 3, 4]
        served.close()

    run(loop_kind, main())


def test_a_task_may_end_in_a_parked_reply(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        parked = Parked()

        async def work() -> Parked:
            await asyncio.sleep(0)
            return parked

        served.script.replies[1] = work
        await served.peer.send(requests(1, 2))
        await until(lambda: served.script.seen == [1, 2])
        assert await served.peer.silent()
        parked.resolve(answer(1))
        assert await served.peer.numbers(2) == [1, 2]
        served.close()

    run(loop_kind, main())


def test_too_many_parked_replies_mute_the_connection(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        parked = [served.script.park(number) for number in range(MAX_PENDING_REPLIES + 10)]
        await served.peer.send(requests(*range(MAX_PENDING_REPLIES + 20)))
        await until(lambda: len(served.script.seen) >= MAX_PENDING_REPLIES)
        await turns()
        assert served.script.seen == list(range(MAX_PENDING_REPLIES))
        for number in range(MAX_PENDING_REPLIES + 10):
            await until(lambda number=number: number in served.script.seen)
            parked[number].resolve(answer(number))
        assert await served.peer.numbers(MAX_PENDING_REPLIES + 20) == list(range(MAX_PENDING_REPLIES + 20))
        served.close()

    run(loop_kind, main())


def test_large_replies_behind_a_parked_one_mute_the_connection(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        first = served.script.park(0)
        size = MAX_PENDING_BYTES // 4
        for number in range(1, 20):
            served.script.replies[number] = lambda number=number: answer(number, padding=size)  # type: ignore[misc]
        await served.peer.send(requests(*range(20)))
        await until(lambda: len(served.script.seen) > 4)
        await turns()
        assert served.script.seen == [0, 1, 2, 3, 4]  # the parked one, and what fills the bound
        first.resolve(answer(0))
        assert await served.peer.numbers(20) == list(range(20))
        served.close()

    run(loop_kind, main())


@pytest.mark.parametrize("size", [100, LARGE_REPLY + 1, 1_000_000])
def test_a_peer_that_does_not_read_is_not_served_further(loop_kind: str, size: int) -> None:
    """However many requests it sends ahead, the broker holds a bounded number of replies for it."""

    async def main() -> None:
        served = Served()
        script = served.script
        count = 20_000
        for number in range(count):
            script.replies[number] = lambda number=number: answer(number, padding=size)  # type: ignore[misc]
        waiting = requests(*range(count))
        while taken := served.peer.send_some(waiting):
            waiting = waiting[taken:]
            await turns()
        await turns(100)
        unsent = len(script.seen) * size - 2_000_000  # less what the sockets' own buffers may hold
        assert unsent <= MAX_BUFFERS * LARGE_REPLY + size
        assert len(script.seen) < count
        seen = len(script.seen)
        await turns(100)
        assert len(script.seen) == seen
        served.close()

    run(loop_kind, main())


def test_backlogged_requests_are_handled_once_the_peer_reads_again(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        for number in range(50):
            served.script.replies[number] = lambda number=number: answer(number, 300_000)  # type: ignore[misc]
        await served.peer.send(requests(*range(100)))
        await turns(100)
        assert len(served.script.seen) < 50
        assert await served.peer.numbers(100) == list(range(100))
        assert served.script.seen == list(range(100))
        served.close()

    run(loop_kind, main())


def test_requests_beyond_queued_max_requests_wait_for_their_turn(loop_kind: str) -> None:
    async def main() -> None:
        limits = request_limits(requests=2)
        served = [Served(limits) for _ in range(4)]
        work = [each.script.work(1) for each in served]
        for each in served:
            await each.peer.send(requests(1, 2))
        await until(lambda: limits.running == 2)
        await turns()
        assert [each.script.seen for each in served] == [[1], [1], [], []]
        work[0].set()
        assert await served[0].peer.numbers(1) == [1]
        await until(lambda: served[2].script.seen == [1])
        for go_on in work:
            go_on.set()
        for each in served[1:]:
            assert await each.peer.numbers(2) == [1, 2]
        assert await served[0].peer.numbers(1) == [2]
        assert limits.running == 0
        for each in served:
            each.close()

    run(loop_kind, main())


def test_a_connection_whose_own_task_ends_while_the_gate_is_full_is_woken_later(loop_kind: str) -> None:
    async def main() -> None:
        limits = request_limits(requests=1)
        first, second = Served(limits), Served(limits)
        ready, other = first.script.work(1), second.script.work(1)
        await first.peer.send(request(1))
        await until(lambda: first.script.seen)
        await second.peer.send(request(1))
        await turns()
        ready.set()  # frees the slot, which the other connection takes before the first one looks again
        assert await first.peer.numbers(1) == [1]
        await until(lambda: second.script.seen == [1])
        await first.peer.send(request(2))
        other.set()
        assert await second.peer.numbers(1) == [1]
        assert await first.peer.numbers(1) == [2]
        first.close()
        second.close()

    run(loop_kind, main())


def test_a_partial_request_waits_for_memory_and_is_woken(loop_kind: str) -> None:
    async def main() -> None:
        limits = request_limits(memory=100_000)
        holder, waiter, small = Served(limits), Served(limits), Served(limits)
        large = request(1, padding=500_000)
        await holder.peer.send(large[:10])
        await until(lambda: limits.reserved == len(large))  # the last one in may overdraw
        sending = asyncio.create_task(waiter.peer.send(large))
        await turns(50)
        assert waiter.script.seen == []
        assert limits.reserved == len(large)
        await small.peer.send(request(7))  # a request that comes whole needs no memory of its own
        assert await small.peer.numbers(1) == [7]
        await holder.peer.send(large[10:])
        assert await holder.peer.numbers(1) == [1]
        assert await waiter.peer.numbers(1) == [1]
        await sending
        assert limits.reserved == 0
        for each in (holder, waiter, small):
            each.close()

    run(loop_kind, main())


def test_memory_stays_taken_while_a_large_request_waits_in_the_backlog(loop_kind: str) -> None:
    async def main() -> None:
        limits = request_limits(requests=1, memory=1_000_000)
        busy, large = Served(limits), Served(limits)
        go_on = busy.script.work(1)
        data = request(1, padding=500_000)
        await large.peer.send(data[:-1])
        await until(lambda: limits.reserved == len(data))
        await busy.peer.send(request(1))
        await until(lambda: limits.full)
        await large.peer.send(data[-1:])
        await turns(50)
        assert large.script.seen == []
        assert limits.reserved == len(data)
        go_on.set()
        assert await large.peer.numbers(1) == [1]
        assert limits.reserved == 0
        busy.close()
        large.close()

    run(loop_kind, main())


def test_a_peer_that_leaves_in_any_state_leaves_nothing_behind(loop_kind: str) -> None:
    async def parked(served: Served) -> None:
        served.script.park(1, abandoned=lambda: served.script.seen.append(-1))
        await served.peer.send(requests(1, 2))
        await until(lambda: served.script.seen == [1, 2])

    async def partial(served: Served) -> None:
        await served.peer.send(request(1, padding=500_000)[:100])
        await until(lambda: served.limits.reserved)

    async def starved(served: Served) -> None:
        holder = Served(served.limits)
        assert served.limits.reserve(holder.connection, 2_000)
        await served.peer.send(request(1, padding=500_000)[:100])
        await until(lambda: MuteReason.NO_MEMORY in served.connection.muted)
        served.connection.close()  # it does not read, so only the broker can end it
        served.limits.release(holder.connection, 2_000)
        holder.close()

    async def running(served: Served) -> None:
        go_on = served.script.work(1)
        await served.peer.send(request(1))
        await until(lambda: served.limits.running)
        served.connection.close()
        go_on.set()
        await until(lambda: not served.limits.running)

    async def writing(served: Served) -> None:
        served.script.replies[1] = lambda: answer(1, padding=5_000_000)
        await served.peer.send(requests(1, 2))
        await until(lambda: served.script.seen)
        await turns(50)

    async def main() -> None:
        for state in (parked, partial, starved, running, writing):
            served = Served(request_limits(memory=1_000))
            await state(served)
            served.peer.close()
            await until(lambda served=served: served.connection.closed)
            assert served.gone == [served.connection]
            assert served.limits.reserved == 0
            assert served.limits.running == 0
            assert served.server.fileno() == -1
            await turns()
            if state is parked:
                assert served.script.seen == [1, 2, -1]

    run(loop_kind, main())


def test_a_reply_that_comes_after_the_end_is_dropped(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()
        parked = served.script.park(1)
        await served.peer.send(request(1))
        await until(lambda: served.script.seen)
        served.close()
        parked.resolve(answer(1))
        await turns()

    run(loop_kind, main())


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (struct.pack(">i", 2**31 - 1), "socket.request.max.bytes=1048576"),
        (struct.pack(">i", -5), "does not speak the Kafka protocol"),
        (struct.pack(">i", 3) + b"abc", "does not speak the Kafka protocol"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP request on a PLAINTEXT listener (PLAINTEXT)"),
    ],
)
def test_a_wrong_length_ends_the_connection_after_the_requests_before_it(
    loop_kind: str, sent: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with caplog.at_level(logging.INFO, "moldau.net"):
            served = Served()
            await served.peer.send(request(1) + sent)
            assert await served.peer.numbers(1) == [1]
            assert await served.peer.ended()
            assert reason in caplog.text
            served.peer.close()

    run(loop_kind, main())


def test_a_bad_request_ends_the_connection(loop_kind: str) -> None:
    async def main() -> None:
        served = Served()

        def refuse() -> bytes:
            raise BadRequest("no such thing")

        async def refuse_later() -> bytes:
            await asyncio.sleep(0)
            return refuse()

        served.script.replies[1] = refuse
        await served.peer.send(requests(1, 2))
        assert await served.peer.ended()
        assert served.script.seen == [1]
        other = Served(served.limits)
        other.script.replies[1] = refuse_later
        await other.peer.send(requests(1, 2))
        assert await other.peer.ended()
        assert served.limits.running == 0
        served.close()
        other.close()

    run(loop_kind, main())


def test_a_request_is_borrowed_until_its_handler_returns(loop_kind: str) -> None:
    """Frames that wait in the backlog are copies: the shared buffer is overwritten by other connections."""

    async def main() -> None:
        bodies: list[tuple[int, bytes]] = []
        served = Served()
        go_on = served.script.work(1)

        def keep(connection: Connection, frame: memoryview) -> object:
            bodies.append((number_of(frame), bytes(frame[10:])))
            return served.script(connection, frame)

        served.connection._handler = keep  # type: ignore[assignment]
        await served.peer.send(request(1) + framed(struct.pack(">qh", 2, 0) + b"mine"))
        await until(lambda: served.script.seen == [1])
        other = Served(served.limits)
        await other.peer.send(framed(struct.pack(">qh", 3, 0) + b"x" * 200))
        assert await other.peer.numbers(1) == [3]
        go_on.set()
        assert await served.peer.numbers(2) == [1, 2]
        assert bodies == [(1, b""), (2, b"mine")]
        served.close()
        other.close()

    run(loop_kind, main())


def lost(*_: object) -> int:
    """An error as TLS has them, without the operating system's words."""
    raise ConnectionError("the record layer failed")


class LostReceiving(PlainChannel):
    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(sock, loop)
        self.receive_into = lost


class LostSending(PlainChannel):
    def __init__(self, sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(sock, loop)
        self.send = lost


@pytest.mark.parametrize(
    ("channel", "reason"),
    [(LostReceiving, "receive failed: the record layer failed"), (LostSending, "send failed: the record layer failed")],
)
def test_a_channel_that_fails_without_an_error_number_is_closed_with_its_message(
    loop_kind: str, channel: type[PlainChannel], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        with caplog.at_level(logging.INFO, "moldau.net"):
            served = Served(channel_of=channel)
            await served.peer.send(request(1))
            assert await served.peer.ended()
            assert reason in caplog.text
            served.peer.close()

    run(loop_kind, main())


class FullOnce(PlainChannel):
    """A channel that takes nothing the first time, and everything at once when asked again."""

    __slots__ = ("refused",)

    def send_buffers(self, buffers: Sequence[Buffer], more: bool) -> int:
        if not hasattr(self, "refused"):
            self.refused = True
            raise BlockingIOError
        return super().send_buffers(buffers, more)


def test_a_socket_that_is_full_for_a_moment_only_does_not_end_the_reading(loop_kind: str) -> None:
    async def main() -> None:
        served = Served(channel_of=FullOnce)
        one = answer(1, padding=MAX_BUFFERS * 2_000)  # too large to be sent as one buffer
        served.script.replies[1] = lambda: [one[at : at + 2_000] for at in range(0, len(one), 2_000)]
        await served.peer.send(requests(1, 2))
        assert await served.peer.numbers(2) == [1, 2]
        await served.peer.send(request(3))
        assert await served.peer.numbers(1) == [3]
        served.close()

    run(loop_kind, main())
