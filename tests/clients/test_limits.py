"""Every limit on connections and requests, tried at its edge: the last that fits is served, the next is not."""

import resource
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from kafka.protocol.metadata import MetadataRequest

from support.brokers.processes import BrokerProcess, StartBroker
from support.clients.raw import ConnectionEndedError, RawClient
from support.log.batches import Written, batch

API_VERSIONS = struct.pack(">hhih", 18, 0, 7, -1)
IDLE_CONNECTIONS = 10_000
MIB = 1 << 20


def serves(client: RawClient, seconds: float = 30) -> bool:
    """Whether the broker answers on this connection."""
    client.socket.settimeout(seconds)
    try:
        client.send_frame(API_VERSIONS)
        return client.read_frame()[:4] == struct.pack(">i", 7)
    except (ConnectionEndedError, ConnectionError, TimeoutError):
        return False


def served_again(broker: BrokerProcess) -> bool:
    """Whether a new connection is served within reason; places become free a moment after a peer has left."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with RawClient(broker.bootstrap) as client:
            if serves(client, 5):
                return True
    return False


@contextmanager
def connections(broker: BrokerProcess, count: int, wait_every: int = 1 << 30) -> Iterator[list[RawClient]]:
    """So many connections; with `wait_every` the broker is given the time to accept so many before the next ones."""
    opened: list[RawClient] = []
    try:
        for number in range(1, count + 1):
            opened.append(RawClient(broker.bootstrap))
            if number % wait_every == 0:
                assert serves(opened[-1])
        yield opened
    finally:
        for client in opened:
            client.socket.close()


@contextmanager
def serving_connections(broker: BrokerProcess, count: int) -> Iterator[list[RawClient]]:
    """So many connections, all served. The connection of the readiness check may be closed a moment late."""
    deadline = time.monotonic() + 30
    while True:
        with connections(broker, count) as opened:
            if all(serves(client) for client in opened):
                yield opened
                return
        assert time.monotonic() < deadline


def padded_metadata(size: int) -> bytes:
    """A valid Metadata request of exactly that size, filled up by an unknown tagged field."""
    start = struct.pack(">hhih", 3, 12, 7, -1) + b"\0" + b"\1\0\0"
    room = size - len(start)
    for length in range(room - 8, room):
        rest = b"\1" + varint(1000) + varint(length) + bytes(length)
        if len(rest) == room:
            return start + rest
    raise AssertionError(size)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(out) + bytes([value])


def test_socket_request_max_bytes(start_broker: StartBroker) -> None:
    own = start_broker(socket_request_max_bytes=20_000)
    with RawClient(own.bootstrap) as client:
        client.send_frame(padded_metadata(20_000))
        assert struct.unpack_from(">i", client.read_frame())[0] == 7
        client.send_frame(padded_metadata(20_001))
        assert client.is_closed()
    assert served_again(own)


def test_max_connections(start_broker: StartBroker, on_apache: bool) -> None:
    limit = 30 if on_apache else 5  # Apache Kafka counts the connections to its own controller too
    own = start_broker(max_connections=limit)
    filled = connections(own, limit) if on_apache else serving_connections(own, limit)
    with filled as opened, connections(own, 1) as one_more:
        answered = [serves(client, 2) for client in (*one_more, *opened)]
        assert sum(answered) <= limit
    assert served_again(own)


def test_max_connections_per_ip(start_broker: StartBroker) -> None:
    own = start_broker(max_connections_per_ip=3)
    with serving_connections(own, 3) as opened:
        with connections(own, 1) as one_more:
            assert not serves(one_more[0])
        assert all(serves(client) for client in opened)
        opened[0].socket.close()
        assert served_again(own)


def test_max_connections_per_ip_overrides(start_broker: StartBroker) -> None:
    own = start_broker(max_connections_per_ip_overrides="127.0.0.1:2")
    with serving_connections(own, 2), connections(own, 1) as one_more:
        assert not serves(one_more[0])
    assert served_again(own)


def test_connections_max_idle_ms(start_broker: StartBroker) -> None:
    own = start_broker(connections_max_idle_ms=1500)
    with connections(own, 3) as (never_used, idle, busy):
        assert serves(idle)
        closed = False
        while not closed:
            assert serves(busy), "a connection in use is not idle"
            idle.socket.settimeout(0.2)
            try:
                closed = idle.is_closed()
            except TimeoutError:
                continue
        never_used.socket.settimeout(30)
        assert never_used.is_closed()
        assert serves(busy)


def test_queued_max_request_bytes(start_broker: StartBroker, on_apache: bool) -> None:
    """Forty requests of 1 MB at a time, with room for four: memory stays small, and each is answered in the end."""
    settings = {"queued_max_request_bytes": 4 * MIB, "socket_request_max_bytes": 2 * MIB}
    own = start_broker(**settings, message_max_bytes=2 * MIB)
    with RawClient(own.bootstrap) as client:
        client.create_topic("queue")
    before = psutil.Process(own.pid).memory_info().rss
    with connections(own, 40) as opened:
        request = opened[0].produce_request("queue", batch(Written(bytes(1_000_000))))
        frame = opened[0].frame(request, 12)
        for client in opened:
            client.socket.setblocking(False)
        waiting = {client: memoryview(frame) for client in opened}
        peak = before
        deadline = time.monotonic() + 60
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} requests were not taken"
            send_a_little(waiting)
            peak = max(peak, psutil.Process(own.pid).memory_info().rss)
        for client in opened:
            client.socket.settimeout(60)
            assert struct.unpack_from(">i", client.read_frame())[0] == 1
    assert on_apache or peak - before < 30 * MIB, f"memory grew by {(peak - before) / MIB:.0f} MiB"
    with RawClient(own.bootstrap) as client:
        assert client.list_offset("queue", -1).offset == 40


def send_a_little(waiting: dict[RawClient, memoryview]) -> None:
    """Send to each as much as it takes just now, up to 64 KiB."""
    moved = False
    for client, rest in list(waiting.items()):
        try:
            sent = client.socket.send(rest[: 64 * 1024])
        except BlockingIOError:
            continue
        moved = True
        waiting[client] = rest[sent:]
        if sent == len(rest):
            del waiting[client]
    if not moved:
        time.sleep(0.01)


def test_queued_max_requests(start_broker: StartBroker) -> None:
    """A queue of two, twenty peers and a thousand requests at once: all are answered, each in its order."""
    own = start_broker(queued_max_requests=2)
    with connections(own, 20) as opened:
        for client in opened:
            nothing = MetadataRequest(topics=[], allow_auto_topic_creation=False)
            client.socket.sendall(b"".join(client.frame(nothing, 12) for _ in range(50)))
        for client in opened:
            assert [struct.unpack_from(">i", client.read_frame())[0] for _ in range(50)] == list(range(1, 51))


def test_message_max_bytes(start_broker: StartBroker) -> None:
    own = start_broker(message_max_bytes=5000)
    overhead = len(batch(Written(bytes(4900)))) - 4900
    with RawClient(own.bootstrap) as client:
        client.create_topic("sizes")
        client.create_topic("larger", 1, {"max.message.bytes": "9000"})
        assert client.produce("sizes", batch(Written(bytes(5000 - overhead)))).error_code == 0
        assert client.produce("sizes", batch(Written(bytes(5001 - overhead)))).error_code == 10
        assert client.produce("larger", batch(Written(bytes(8000)))).error_code == 0


def test_fetch_max_bytes(start_broker: StartBroker) -> None:
    own = start_broker(fetch_max_bytes=3500)
    with RawClient(own.bootstrap) as client:
        client.create_topic("bytes")
        for _ in range(10):
            client.produce("bytes", batch(Written(bytes(1000))))
        assert len(client.fetched("bytes", 0, partition_max_bytes=50 * MIB)) == 3


def test_num_partitions_and_defaults_of_new_topics(start_broker: StartBroker) -> None:
    own = start_broker(num_partitions=3)
    with RawClient(own.bootstrap) as client:
        client.metadata("auto", create=True)
        client.wait_for_topic("auto", 3)


def test_ten_thousand_idle_connections(start_broker: StartBroker, on_apache: bool) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = IDLE_CONNECTIONS + 500
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"needs {wanted} file descriptors, the hard limit is {hard}; raise it with: ulimit -Hn {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    own = start_broker()
    process = psutil.Process(own.pid)
    before = process.memory_info().rss
    with connections(own, IDLE_CONNECTIONS, wait_every=40) as opened:
        grown = process.memory_info().rss - before
        print(f"{IDLE_CONNECTIONS} idle connections: {grown / IDLE_CONNECTIONS / 1024:.1f} KiB each")
        assert on_apache or grown < 200 * MIB
        with RawClient(own.bootstrap) as client:
            client.create_topic("busy")
            assert [client.produce("busy", batch()).base_offset for _ in range(50)] == list(range(50))
        assert serves(opened[-1])
    assert served_again(own)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
