"""One connection, against a peer that says what a test tells it to."""

import socket
import threading
from collections.abc import Callable, Iterator
from struct import Struct

import pytest

from moldau.client.direct.connection import Connection, ConnectionLost, UnsupportedByBroker
from moldau.wire.codec import encode
from moldau.wire.headers import pack_response_header, read_request_prefix
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

LENGTH = Struct(">i")
Peer = Callable[..., tuple[str, int]]
Answering = Callable[[socket.socket, bytes], bytes | None]

VERSIONS = ApiVersionsResponse(
    error_code=0,
    api_keys=(
        ApiVersion(api_key=3, min_version=0, max_version=9),
        ApiVersion(api_key=10, min_version=7, max_version=9),
        ApiVersion(api_key=18, min_version=0, max_version=3),
    ),
)


def framed(body: bytes) -> bytes:
    return LENGTH.pack(len(body)) + body


def api_versions(peer: socket.socket, frame: bytes) -> bytes | None:
    """As a broker answers that knows ApiVersions up to 3 and nothing later."""
    _, version, correlation_id = read_request_prefix(frame)
    if version > 3:
        refusal = ApiVersionsResponse(error_code=35, api_keys=VERSIONS.api_keys[2:])
        return pack_response_header(18, version, correlation_id) + encode(refusal, 0)
    return pack_response_header(18, version, correlation_id) + encode(VERSIONS, version)


def metadata(cluster_id: str, frame: bytes) -> bytes:
    _, version, correlation_id = read_request_prefix(frame)
    answer = MetadataResponse(brokers=(), topics=(), cluster_id=cluster_id)
    return pack_response_header(3, version, correlation_id) + encode(answer, version)


@pytest.fixture
def peer() -> Iterator[Peer]:
    """`peer(answer, …)`: where a peer listens that gives each request to the next function; None hangs up."""
    listener = socket.create_server(("127.0.0.1", 0))
    listener.settimeout(10)
    threads: list[threading.Thread] = []

    def serve(answers: tuple[Answering, ...]) -> None:
        accepted, _ = listener.accept()
        with accepted:
            accepted.settimeout(10)
            for answer in answers:
                head = accepted.recv(4, socket.MSG_WAITALL)
                if len(head) < 4:
                    return
                body = answer(accepted, accepted.recv(LENGTH.unpack(head)[0], socket.MSG_WAITALL))
                if body is None:
                    return
                accepted.sendall(body if body[:4] == b"raw:" else framed(body))
            accepted.recv(1)

    def start(*answers: Answering) -> tuple[str, int]:
        threads.append(threading.Thread(target=serve, args=(answers,), daemon=True))
        threads[-1].start()
        return listener.getsockname()[:2]

    yield start
    listener.close()
    for thread in threads:
        thread.join(15)


def connect(address: tuple[str, int], timeout_s: float = 10) -> Connection:
    return Connection(*address, client_id="test", timeout_s=timeout_s)


def ask(connection: Connection) -> MetadataResponse:
    return connection.ask(MetadataRequest(topics=()), MetadataResponse)


def test_versions_are_agreed_on_with_an_older_broker(peer: Peer) -> None:
    connection = connect(peer(api_versions, api_versions, lambda _, frame: metadata("one", frame)))
    assert connection.version_of(MetadataRequest) == 9
    assert connection.version_of(MetadataRequest, until=4) == 4
    assert connection.version_of(FindCoordinatorRequest) is None, "the broker's versions begin behind ours"
    with pytest.raises(UnsupportedByBroker, match="FindCoordinator"):
        connection.ask(FindCoordinatorRequest(coordinator_keys=("g",)), FindCoordinatorResponse)
    assert ask(connection).cluster_id == "one"
    connection.close()


def test_responses_are_kept_for_their_requests(peer: Peer) -> None:
    numbered = [lambda _, frame, name=name: metadata(name, frame) for name in ("one", "two", "three")]
    connection = connect(peer(api_versions, api_versions, *numbered))
    request = MetadataRequest(topics=())
    tickets = [connection.send(request, MetadataResponse) for _ in range(3)]
    assert connection.receive(tickets[2]).cluster_id == "three"
    assert connection.receive(tickets[0]).cluster_id == "one"
    connection.forget(tickets[1])
    with pytest.raises(ConnectionLost, match="already read"):
        connection.receive(tickets[0])
    connection.close()


def other_correlation(_: socket.socket, frame: bytes) -> bytes:
    answer = bytearray(metadata("one", frame))
    answer[3] ^= 1
    return bytes(answer)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (lambda *_: None, "closed the connection"),
        (lambda *_: b"raw:", "does not respond like a Kafka broker"),  # a length of nearly two gigabytes
        (other_correlation, "responded with correlation id"),
        (lambda _, frame: metadata("one", frame)[:-3], "malformed Metadata response"),
        (lambda _, frame: metadata("one", frame)[:4], "malformed Metadata response"),
    ],
)
def test_a_peer_that_misbehaves_is_left(peer: Peer, answer: Answering, why: str) -> None:
    connection = connect(peer(api_versions, api_versions, answer))
    with pytest.raises(ConnectionLost, match=why):
        ask(connection)
    assert connection.stale
    with pytest.raises(ConnectionLost):
        ask(connection)


def test_a_peer_that_does_not_answer_is_not_waited_for_for_ever(peer: Peer) -> None:
    done = threading.Event()

    def silent(_: socket.socket, frame: bytes) -> None:
        done.wait(10)

    connection = connect(peer(api_versions, api_versions, silent), timeout_s=0.2)
    with pytest.raises(TimeoutError):
        ask(connection)
    assert connection.stale
    done.set()
