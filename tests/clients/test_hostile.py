"""Hostile peers: a fuzz of the whole protocol, and peers that lie, stall or never read. Other clients must not notice.

While they are at work a witness, a well-behaved client on a connection of its own, produces and fetches and checks
every answer.
"""

import asyncio
import os
import random
import re
import socket
import ssl
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import cramjam
import psutil
import pytest
from crc32c import crc32c

from support.brokers.processes import BrokerProcess, StartBroker
from support.brokers.served import SERVED
from support.clients.raw import RawClient
from support.log.batches import Written, batch, plain_values
from support.wire.frames import Frames, spoil

FULL = bool(os.environ.get("MOLDAU_FULL"))
FRAMES = int(os.environ.get("MOLDAU_FUZZ_FRAMES", "100000" if FULL else "15000"))
SEED = int(os.environ.get("MOLDAU_FUZZ_SEED", "20240229"))
AT_ONCE = 48  # connections
PIPELINES = (2, 2, 2, 12)  # frames sent before the first answer is read; few get behind one that ends the connection
STALLED_SECONDS = 0.25  # a connection without progress for that long waits for more bytes: leave it
MIB = 1 << 20
MEMORY_GROWTH = 150 * MIB


class Witness:
    """Produces numbers and reads them back until told to stop; any wrong answer ends it."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.rounds = 0
        self.failure: BaseException | None = None
        self.ending = threading.Event()
        self.thread = threading.Thread(target=self.run)

    def run(self) -> None:
        try:
            with RawClient(self.bootstrap) as client:
                while not self.ending.wait(0.02):
                    value = str(self.rounds).encode()
                    assert client.produce("witness", batch(Written(value))).base_offset == self.rounds
                    found = client.fetched("witness", self.rounds)
                    assert [plain_values(each) for each in found] == [[value]]
                    self.rounds += 1
        except BaseException as failure:  # noqa: BLE001 - handed over to the thread of the test
            self.failure = failure


@contextmanager
def witness(broker: BrokerProcess) -> Iterator[Witness]:
    """A witness for the length of a block; it must have seen only right answers."""
    with RawClient(broker.bootstrap) as client:
        client.create_topic("witness")
    seen = Witness(broker.bootstrap)
    seen.thread.start()
    try:
        yield seen
        before = seen.rounds
        while seen.rounds < before + 3 and seen.failure is None:
            seen.ending.wait(0.02)
    finally:
        seen.ending.set()
        seen.thread.join()
    if seen.failure is not None:
        raise AssertionError("another connection was disturbed") from seen.failure
    assert internal_errors(broker) == {}


TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*(\S.*)")


def internal_errors(broker: BrokerProcess) -> dict[str, int]:
    """The last line of each traceback in the broker's log, and how often it is there."""
    return dict(Counter(TRACEBACK.findall(broker.log_text())))


def memory(broker: BrokerProcess) -> int:
    assert broker.pid is not None
    return int(psutil.Process(broker.pid).memory_info().rss)


# -- the fuzz


class Fuzzer:
    """Sends spoiled frames over many connections and counts those that the broker has dealt with."""

    def __init__(self, broker: BrokerProcess) -> None:
        host, port = broker.bootstrap.rsplit(":", 1)
        self.address = host, int(port)
        with RawClient(broker.bootstrap) as client:
            frames = Frames("fuzz", client.create_topic("fuzz"))
        self.bodies = [
            frames.frame(api, version, 1)
            for api, (lowest, highest) in SERVED.items()
            for version in range(lowest, highest + 1)
            if (api, version) not in {(0, 0), (0, 1), (0, 2)}
        ]
        self.chance = random.Random(SEED)
        self.dealt_with = 0

    async def run(self) -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(self.work())

    async def work(self) -> None:
        while self.dealt_with < FRAMES:
            reader, writer = await asyncio.open_connection(*self.address)
            sent = self.chance.choice(PIPELINES)
            writer.write(b"".join(spoil(self.chance.choice(self.bodies), self.chance) for _ in range(sent)))
            answered = await self.answers(reader, sent - 1)
            self.dealt_with += answered + 1  # the last one was refused, or waits for the rest of it
            writer.transport.abort()

    async def answers(self, reader: asyncio.StreamReader, most: int) -> int:
        """How many answers came before the connection was closed or stalled."""
        count = 0
        with suppress(asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            while count < most:
                async with asyncio.timeout(STALLED_SECONDS):
                    (size,) = struct.unpack(">i", await reader.readexactly(4))
                    await reader.readexactly(size)
                count += 1
        return count


@pytest.mark.timeout(600)
def test_spoiled_frames_harm_nobody(start_broker: StartBroker, on_apache: bool) -> None:
    own = start_broker(auto_create_topics_enable="false")
    fuzzer = Fuzzer(own)
    before = memory(own)
    with witness(own) as seen:
        asyncio.run(fuzzer.run())
    assert fuzzer.dealt_with >= FRAMES
    grown = memory(own) - before
    print(f"{fuzzer.dealt_with} frames; {seen.rounds} rounds of the witness; memory grew by {grown / MIB:.0f} MiB")
    assert on_apache or grown < MEMORY_GROWTH
    assert psutil.Process(own.pid).num_fds() < 500, "connections that ended are forgotten"


# -- single lies


def hostile(broker: BrokerProcess) -> RawClient:
    return RawClient(broker.bootstrap, timeout=60)


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 100 * MIB + 1], ids=str)
def test_an_impossible_size_closes_the_connection(own_broker: BrokerProcess, size: int) -> None:
    before = memory(own_broker)
    with witness(own_broker), hostile(own_broker) as peer:
        peer.socket.sendall(struct.pack(">i", size) + bytes(100))
        assert peer.is_closed()
    assert memory(own_broker) - before < 50 * MIB


def test_a_large_size_is_not_memory_until_the_bytes_arrive(own_broker: BrokerProcess, on_apache: bool) -> None:
    """Thirty peers announce 100 MiB each and send a little of it."""
    before = memory(own_broker)
    with witness(own_broker) as seen:
        peers = [hostile(own_broker) for _ in range(30)]
        for peer in peers:
            peer.socket.sendall(struct.pack(">i", 100 * MIB) + bytes(10_000))
        rounds = seen.rounds
        while seen.rounds < rounds + 10 and seen.failure is None:
            seen.ending.wait(0.02)
        assert on_apache or memory(own_broker) - before < 100 * MIB
        for peer in peers:
            peer.socket.close()


def test_halves_of_large_requests_take_bounded_memory(own_broker: BrokerProcess, on_apache: bool) -> None:
    """Six peers really send 90 MB of 100 MiB each, as far as the broker takes it, and stop."""
    before = memory(own_broker)
    with witness(own_broker):
        peers = [hostile(own_broker) for _ in range(6)]
        part = bytes(MIB)
        for peer in peers:
            peer.socket.sendall(struct.pack(">i", 100 * MIB))
            peer.socket.settimeout(0.5)
            with suppress(TimeoutError):
                for _ in range(90):
                    peer.socket.sendall(part)
        grown = memory(own_broker) - before
        print(f"memory grew by {grown / MIB:.0f} MiB")
        assert on_apache or grown < 250 * MIB
        for peer in peers:
            peer.socket.close()


def test_a_large_legal_request_gets_through_beside_a_half_one(own_broker: BrokerProcess) -> None:
    with hostile(own_broker) as half, RawClient(own_broker.bootstrap) as client:
        client.create_topic("large", 1, {"max.message.bytes": str(100 * MIB)})
        half.socket.sendall(struct.pack(">i", 100 * MIB) + bytes(MIB))
        assert client.produce("large", batch(Written(bytes(90 * 1_000_000)))).error_code == 0


@pytest.mark.parametrize("protocol", ["TLS", "HTTP"])
def test_another_protocol_is_named_in_the_log(own_broker: BrokerProcess, protocol: str, on_apache: bool) -> None:
    host, port = own_broker.bootstrap.rsplit(":", 1)
    context = ssl.create_default_context()
    for _ in range(5):
        with socket.create_connection((host, int(port)), timeout=30) as plain:
            if protocol == "TLS":
                with pytest.raises((ssl.SSLError, ConnectionError)):
                    context.wrap_socket(plain, server_hostname=host)
            else:
                plain.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n".encode())
                with suppress(ConnectionResetError):
                    assert plain.recv(1) == b""
    if not on_apache:
        named = [line for line in own_broker.log_text().splitlines() if f"{protocol} " in line]
        assert len(named) == 1, named
        assert "Closing connection from " in named[0]
        assert "on a PLAINTEXT listener (PLAINTEXT); " in named[0]


def test_half_sent_frames_and_slow_drips(own_broker: BrokerProcess) -> None:
    frame = struct.pack(">ihhih", 10, 18, 0, 1, -1)
    with witness(own_broker) as seen:
        silent = [hostile(own_broker) for _ in range(50)]
        for number, peer in enumerate(silent):
            peer.socket.sendall(frame[: number % len(frame)])
        with hostile(own_broker) as drip:
            for position in range(len(frame)):
                rounds = seen.rounds
                drip.socket.sendall(frame[position : position + 1])
                while seen.rounds == rounds and seen.failure is None:
                    seen.ending.wait(0.01)
            assert struct.unpack_from(">i", drip.read_frame())[0] == 1
        for peer in silent:
            peer.socket.close()


def test_connections_that_open_and_vanish(own_broker: BrokerProcess) -> None:
    descriptors = psutil.Process(own_broker.pid).num_fds()
    reset = struct.pack("ii", 1, 0)
    with witness(own_broker):
        for number in range(500):
            peer = hostile(own_broker)
            if number % 2:
                peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)
            peer.socket.close()
    assert psutil.Process(own_broker.pid).num_fds() < descriptors + 60


def send_until_stuck(peer: RawClient, frame: bytes) -> int:
    """Send the frame again and again, never reading, until the broker no longer takes it; the bytes sent."""
    peer.socket.settimeout(2)
    sent = 0
    with suppress(TimeoutError, ConnectionError):
        while sent < 1 << 30:
            sent += peer.socket.send(frame)
    return sent


def test_a_producer_that_never_reads_its_answers(own_broker: BrokerProcess, on_apache: bool) -> None:
    before = memory(own_broker)
    with witness(own_broker), hostile(own_broker) as peer:
        peer.create_topic("unread")
        frame = peer.frame(peer.produce_request("unread", batch(Written(b"x"))), 12) * 500
        sent = send_until_stuck(peer, frame)
        assert sent < 1 << 30, "the broker stops reading from a client that does not read"
        assert on_apache or memory(own_broker) - before < MEMORY_GROWTH


def test_a_consumer_that_never_reads_its_answers(own_broker: BrokerProcess, on_apache: bool) -> None:
    with hostile(own_broker) as peer:
        peer.create_topic("unread")
        for _ in range(20):
            assert peer.produce("unread", batch(Written(bytes(900_000)))).error_code == 0
    before = memory(own_broker)
    with witness(own_broker):
        peers = [hostile(own_broker) for _ in range(20)]
        for peer in peers:
            request = peer.fetch_request("unread", 0, partition_max_bytes=50 * MIB)
            peer.socket.sendall(peer.frame(request, 12) * 50)
        assert on_apache or memory(own_broker) - before < MEMORY_GROWTH
        for peer in peers:
            peer.socket.close()


def test_a_fetch_whose_peer_has_gone_is_forgotten(own_broker: BrokerProcess) -> None:
    descriptors = psutil.Process(own_broker.pid).num_fds()
    with witness(own_broker):
        for _ in range(100):
            with hostile(own_broker) as peer:
                patient = peer.fetch_request("witness", 0, max_wait_ms=2**31 - 1, min_bytes=2**31 - 1)
                peer.send(patient, 12)
    assert psutil.Process(own_broker.pid).num_fds() < descriptors + 60


def test_compression_bombs_stay_small(own_broker: BrokerProcess, on_apache: bool) -> None:
    """A batch of a few kilobytes that unpacks to 256 MiB, for a topic that recompresses and one that does not."""
    with hostile(own_broker) as peer:
        peer.create_topic("kept")
        peer.create_topic("recompressed", 1, {"compression.type": "lz4"})
    payload = bytes(cramjam.zstd.compress(bytes(256 * MIB)))
    bomb = compressed_batch(payload, codec=4)
    assert len(bomb) < MIB
    before = memory(own_broker)
    with witness(own_broker), hostile(own_broker) as peer:
        for _ in range(3):
            peer.produce("recompressed", bomb)
            peer.produce("kept", bomb)
        assert on_apache or memory(own_broker) - before < 400 * MIB


def compressed_batch(payload: bytes, codec: int) -> bytes:
    """A batch of one record whose compressed bytes are `payload`, whatever that is."""
    plain = batch(Written(b""))
    after = struct.pack(">h", codec) + plain[23:61] + payload
    head = plain[12:17] + struct.pack(">I", crc32c(after))
    return plain[:8] + struct.pack(">i", len(head) + len(after)) + head + after
