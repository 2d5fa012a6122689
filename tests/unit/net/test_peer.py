"""A broker's connection to another: answers in order, peers that break the rules, time-outs, and coming back."""

import asyncio
import struct
from collections.abc import Awaitable, Callable

import pytest

from moldau.net import peer as peer_module
from moldau.net.peer import Address, Peer, PeerLost, connect_plain
from moldau.wire.codec import encode
from moldau.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from support.net.loops import framed, on_both_loops, run, turns, until

pytestmark = on_both_loops

KEY, VERSION = 18, 3
Serve = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]


class Server:
    """A peer that answers as a test says; counts connections."""

    def __init__(self, serve: Serve) -> None:
        self.connections = 0
        self.seen: list[bytes] = []
        self.writers: list[asyncio.StreamWriter] = []
        self._serve = serve

    async def start(self, port: int = 0) -> Address:
        self._server = await asyncio.start_server(self._client, "127.0.0.1", port)
        return Address("127.0.0.1", self._server.sockets[0].getsockname()[1])

    async def _client(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
                self.seen.append(frame)
                await self._serve(frame, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    async def close(self) -> None:
        self._server.close()
        for writer in self.writers:
            writer.close()


def correlation(frame: bytes) -> bytes:
    return frame[4:8]


async def echo(frame: bytes, writer: asyncio.StreamWriter) -> None:
    writer.write(framed(correlation(frame) + frame[-4:]))


async def mute(frame: bytes, writer: asyncio.StreamWriter) -> None:
    """Says nothing."""


def test_answers_come_in_order_for_many_in_flight(loop_kind: str) -> None:
    async def main() -> None:
        server = Server(echo)
        address = await server.start()
        peer = Peer(lambda: address, client_id="me")
        answers = await asyncio.gather(*(peer.ask_raw(KEY, 0, struct.pack(">i", number)) for number in range(500)))
        assert [struct.unpack_from(">i", each.frame, each.at)[0] for each in answers] == list(range(500))
        assert server.connections == 1
        await peer.stop()
        await server.close()

    run(loop_kind, main())


def test_an_answer_larger_than_the_buffer_arrives_whole_and_stays(loop_kind: str) -> None:
    large = bytes(range(256)) * 4096

    async def answer(frame: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(correlation(frame) + (large if frame[-1] else b"tiny")))

    async def main() -> None:
        server = Server(answer)
        address = await server.start()
        peer = Peer(lambda: address)
        answers = await asyncio.gather(*(peer.ask_raw(KEY, 0, bytes([odd])) for odd in (1, 0, 1, 0, 0)))
        bodies = [bytes(each.frame[each.at :]) for each in answers]
        assert bodies == [large, b"tiny", large, b"tiny", b"tiny"]
        await peer.stop()
        await server.close()

    run(loop_kind, main())


def test_messages_are_encoded_and_decoded(loop_kind: str) -> None:
    async def answer(frame: bytes, writer: asyncio.StreamWriter) -> None:
        response = ApiVersionsResponse(error_code=35, api_keys=())
        writer.write(framed(correlation(frame) + encode(response, VERSION)))

    async def main() -> None:
        server = Server(answer)
        address = await server.start()
        peer = Peer(lambda: address)
        response = await peer.ask(ApiVersionsRequest(), VERSION)
        assert response.error_code == 35
        await peer.stop()
        await server.close()

    run(loop_kind, main())


@pytest.mark.parametrize(
    "bad",
    [
        framed(struct.pack(">i", 999_999) + bytes(8)),  # of another request
        struct.pack(">i", -5),  # a length that cannot be
        struct.pack(">i", 2**31 - 1) + bytes(100),  # one that is larger than any answer
        framed(struct.pack(">i", 1) + b"\xff\xff\xff\xff\xff\xff"),  # a body that is no response
    ],
    ids=["correlation", "negative", "huge", "body"],
)
def test_a_bad_answer_ends_the_connection_and_the_next_request_makes_another(loop_kind: str, bad: bytes) -> None:
    async def answer(frame: bytes, writer: asyncio.StreamWriter) -> None:
        if server.connections == 1:
            writer.write(bad)
        else:
            writer.write(framed(correlation(frame) + encode(ApiVersionsResponse(error_code=0, api_keys=()), VERSION)))

    async def main() -> None:
        nonlocal server
        server = Server(answer)
        address = await server.start()
        peer = Peer(lambda: address)
        lost: list[PeerLost] = []
        peer.on_closed = lost.append
        with pytest.raises(PeerLost):
            await peer.ask(ApiVersionsRequest(), VERSION)
        await until(lambda: lost)
        assert isinstance(await peer.ask(ApiVersionsRequest(), VERSION), ApiVersionsResponse)
        assert server.connections == 2
        await peer.stop()
        await server.close()

    server: Server
    run(loop_kind, main())


def test_an_answer_that_nobody_asked_for_ends_the_connection(loop_kind: str) -> None:
    async def twice(frame: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(framed(correlation(frame) + b"once") + framed(correlation(frame) + b"more"))

    async def main() -> None:
        server = Server(twice)
        address = await server.start()
        peer = Peer(lambda: address)
        lost: list[PeerLost] = []
        peer.on_closed = lost.append
        assert bytes((await peer.ask_raw(KEY, 0, b""))[0][4:]) == b"once"
        await until(lambda: lost)
        assert "without a request" in lost[0].reason
        await peer.stop()
        await server.close()

    run(loop_kind, main())


def test_no_answer_in_time_fails_all_that_wait_and_the_next_connects_again(loop_kind: str) -> None:
    async def main() -> None:
        server = Server(mute)
        address = await server.start()
        peer = Peer(lambda: address)
        short = asyncio.create_task(peer.ask_raw(KEY, 0, b"", timeout_ms=30))
        long = asyncio.create_task(peer.ask_raw(KEY, 0, b"", timeout_ms=60_000))
        for waiting in (short, long):
            with pytest.raises(PeerLost, match="request timed out"):
                await waiting
        server._serve = echo
        await peer.ask_raw(KEY, 0, b"four")
        assert server.connections == 2
        await peer.stop()
        await server.close()

    run(loop_kind, main())


def test_a_caller_that_is_cancelled_does_not_mix_up_answers(loop_kind: str) -> None:
    held: list[tuple[bytes, asyncio.StreamWriter]] = []

    async def hold(frame: bytes, writer: asyncio.StreamWriter) -> None:
        held.append((frame, writer))

    async def main() -> None:
        server = Server(hold)
        address = await server.start()
        peer = Peer(lambda: address)
        gone = asyncio.create_task(peer.ask_raw(KEY, 0, b"gone"))
        stays = asyncio.create_task(peer.ask_raw(KEY, 0, b"stay"))
        await until(lambda: len(held) == 2)
        gone.cancel()
        await turns()
        for frame, writer in held:
            await echo(frame, writer)
        answer = await stays
        assert bytes(answer.frame[answer.at :]) == b"stay"
        await peer.stop()
        await server.close()

    run(loop_kind, main())


def test_a_caller_cancelled_while_connecting_leaves_the_connection_to_the_others(loop_kind: str) -> None:
    go_on = asyncio.Event()

    async def slowly(protocol: Callable[[], asyncio.BaseProtocol], address: Address) -> asyncio.Transport:
        await go_on.wait()
        return await peer_module.connect_plain(protocol, address)

    async def main() -> None:
        server = Server(echo)
        address = await server.start()
        peer = Peer(lambda: address, connect=slowly)
        first, second = (asyncio.create_task(peer.ask_raw(KEY, 0, b"four")) for _ in range(2))
        await turns()
        first.cancel()
        await turns()
        go_on.set()
        await second
        assert server.connections == 1
        await peer.stop()
        await server.close()

    run(loop_kind, main())


def test_who_is_not_there_is_refused_and_found_once_it_is(loop_kind: str) -> None:
    async def main() -> None:
        server = Server(echo)
        address = await server.start()
        await server.close()
        peer = Peer(lambda: address)
        with pytest.raises(PeerLost) as refused:
            await peer.connect()
        assert refused.value.refused
        assert not refused.value.sent
        server = Server(echo)
        await server.start(address.port)
        await peer.ask_raw(KEY, 0, b"four")
        assert peer.connected
        await peer.stop()
        await server.close()

    run(loop_kind, main())


def test_the_end_of_a_connection_is_told_once(loop_kind: str) -> None:
    async def main() -> None:
        server = Server(echo)
        address = await server.start()
        peer = Peer(lambda: address)
        lost: list[PeerLost] = []
        peer.on_closed = lost.append
        await peer.ask_raw(KEY, 0, b"four")
        server.writers[0].close()
        await until(lambda: lost)
        assert not peer.connected
        await peer.ask_raw(KEY, 0, b"four")  # at once: it was a working connection
        await peer.stop()
        assert len(lost) == 1
        await server.close()

    run(loop_kind, main())


def test_a_peer_that_moved_is_asked_at_its_new_address(loop_kind: str) -> None:
    async def main() -> None:
        old, new = Server(echo), Server(echo)
        addresses = [await old.start(), await new.start()]
        peer = Peer(lambda: addresses[0])
        await peer.ask_raw(KEY, 0, b"four")
        addresses.reverse()
        await peer.ask_raw(KEY, 0, b"four")
        assert (old.connections, new.connections) == (1, 1)
        await peer.stop()
        await old.close()
        await new.close()

    run(loop_kind, main())


def test_an_unknown_address_and_a_stop_are_told_to_whoever_asks(loop_kind: str) -> None:
    async def main() -> None:
        peer = Peer(lambda: None, name="broker 7")
        with pytest.raises(PeerLost, match="broker 7 has no known address"):
            await peer.ask_raw(KEY, 0, b"")
        waiting = asyncio.create_task(peer.ask_raw(KEY, 0, b""))
        await turns()
        await peer.stop()
        with pytest.raises(PeerLost, match="shutting down"):
            await waiting
        with pytest.raises(PeerLost, match="shutting down"):
            await peer.ask_raw(KEY, 0, b"")

    run(loop_kind, main())


def test_requests_in_flight_are_bounded(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(peer_module, "MAX_IN_FLIGHT", 3)

    async def main() -> None:
        server = Server(mute)
        address = await server.start()
        peer = Peer(lambda: address)
        await peer.connect()
        waiting = [asyncio.create_task(peer.ask_raw(KEY, 0, b"")) for _ in range(3)]
        await turns()
        with pytest.raises(PeerLost, match="3 requests"):
            await peer.ask_raw(KEY, 0, b"")
        await peer.stop()
        assert all(isinstance(each, PeerLost) for each in await asyncio.gather(*waiting, return_exceptions=True))
        await server.close()

    run(loop_kind, main())


def test_a_retired_connection_answers_what_was_asked_and_the_next_request_makes_another(loop_kind: str) -> None:
    async def main() -> None:
        go = asyncio.Event()

        async def slow(frame: bytes, writer: asyncio.StreamWriter) -> None:
            await go.wait()
            await echo(frame, writer)

        server = Server(slow)
        address = await server.start()
        opened: list[asyncio.BaseProtocol] = []

        async def connect(protocol: Callable[[], asyncio.BaseProtocol], address: Address) -> asyncio.Transport:
            opened.append(protocol())
            return await connect_plain(lambda: opened[-1], address)

        peer, closed = Peer(lambda: address, connect=connect), list[PeerLost]()
        peer.on_closed = closed.append
        first = asyncio.create_task(peer.ask_raw(KEY, 0, bytes(4)))
        await until(lambda: len(server.seen) == 1)
        opened[0].retire()  # type: ignore[attr-defined]
        second = asyncio.create_task(peer.ask_raw(KEY, 0, bytes(4)))
        await until(lambda: server.connections == 2)
        go.set()
        await asyncio.gather(first, second)
        opened[1].retire()  # type: ignore[attr-defined]
        await peer.ask_raw(KEY, 0, bytes(4))
        assert server.connections == 3
        assert not closed, "retired connections do not make the peer suspect"
        await peer.stop()
        await server.close()

    run(loop_kind, main())
