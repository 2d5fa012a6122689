"""Requests over a plain socket, to peers that answer, refuse, or are no brokers at all."""

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest

from moldau.base.errors import WireError
from moldau.client.admin import cluster as module
from moldau.client.admin import tls_probe
from moldau.client.admin.cluster import TRANSACTION, open_cluster, retry_transient
from moldau.client.admin.errors import AdminError, InvalidAddress, NoSuchBroker, Unreachable, refused
from moldau.client.admin.log_dirs import LogDirs, read_log_dirs
from moldau.client.admin.security import read_security
from moldau.client.admin.target import Target
from moldau.client.direct.security import Security, Tls
from moldau.security.sasl_client import Sasl
from moldau.wire.codec import decode, encode
from moldau.wire.headers import pack_response_header, read_request_header
from moldau.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from moldau.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.wire.messages.metadata import MetadataResponse, MetadataResponseBroker

Answer = Callable[[bytes], bytes]


@contextmanager
def peer(answer: Answer) -> Iterator[Target]:
    """Something that listens, and answers each frame with what `answer` makes of it; b"" closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):  # of the server's end
                while True:
                    connection, _ = server.accept()
                    answer_frames(connection)

        def answer_frames(connection: socket.socket) -> None:
            # a client that cannot read an answer resets the connection instead of closing it
            with suppress(ConnectionResetError), connection, connection.makefile("rb") as stream:
                while head := stream.read(4):
                    reply = answer(stream.read(struct.unpack(">i", head)[0]))
                    if not reply:
                        return
                    connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Target(f"127.0.0.1:{server.getsockname()[1]}")
        server.shutdown(socket.SHUT_RDWR)  # ends accept
        thread.join(10)


class SmallBroker:
    """Speaks four APIs, in the versions that it was told."""

    def __init__(self, versions: dict[int, tuple[int, int]]) -> None:
        self.versions = {18: (0, 4), 3: (0, 13), **versions}
        self.asked: list[tuple[int, int]] = []
        self.coordinator_errors: list[int] = []

    def __call__(self, frame: bytes) -> bytes:
        header, position = read_request_header(frame)
        self.asked.append((header.api_key, header.api_version))
        body = self.answer(header.api_key, header.api_version, frame, position)
        reply = pack_response_header(header.api_key, header.api_version, header.correlation_id) + body
        return struct.pack(">i", len(reply)) + reply

    def answer(self, key: int, version: int, frame: bytes, position: int) -> bytes:
        if key == 18:
            rows = tuple(ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.versions.items())
            return encode(ApiVersionsResponse(error_code=0, api_keys=rows), version)
        if key == 10:
            asked = decode(FindCoordinatorRequest, version, frame, position).coordinator_keys[0]
            code = self.coordinator_errors.pop(0) if self.coordinator_errors else 0
            row = Coordinator(key=asked, node_id=7, host="h", port=1, error_code=code)
            return encode(FindCoordinatorResponse(coordinators=(row,)), version)
        if key == 66:
            return encode(ListTransactionsResponse(), version)
        brokers = (MetadataResponseBroker(node_id=7, host="127.0.0.1", port=1),)
        return encode(MetadataResponse(brokers=brokers, topics=()), version)


def test_the_newest_common_version_is_used() -> None:
    broker = SmallBroker({10: (0, 3), 3: (0, 99)})
    with peer(broker) as target, open_cluster(target) as cluster:
        assert cluster.ids == [7]
        assert cluster.coordinator(TRANSACTION, "t") == 7
    assert broker.asked == [(18, 4), (3, 13), (10, 3)]


def test_what_the_broker_does_not_have_is_refused_before_it_is_sent() -> None:
    broker = SmallBroker({66: (0, 1), 10: (90, 99)})
    with peer(broker) as target, open_cluster(target) as cluster:
        first = cluster._first
        assert first.ask(ListTransactionsRequest(), ListTransactionsResponse, since=1) == ListTransactionsResponse()
    with peer(broker) as target, pytest.raises(AdminError, match="ListTransactions"), open_cluster(target) as cluster:
        cluster._first.ask(ListTransactionsRequest(), ListTransactionsResponse, since=2)
    with peer(broker) as target, pytest.raises(AdminError, match="FindCoordinator"), open_cluster(target) as cluster:
        cluster.coordinator(TRANSACTION, "t")
    assert [key for key, _ in broker.asked] == [18, 3, 66, 18, 3, 18, 3]


@pytest.mark.parametrize("met", ["before", "while"])
def test_when_the_first_broker_is_lost_another_one_is_asked(met: str) -> None:
    first, second = SmallBroker({66: (0, 1)}), SmallBroker({66: (0, 1)})
    with peer(second) as other, ExitStack() as decompress_batches:
        with peer(first) as target:
            cluster = decompress_batches.enter_context(open_cluster(Target(f"{target.bootstrap},{other.bootstrap}")))
            if met == "before":
                cluster._first.close()
            else:
                cluster._first._socket.shutdown(socket.SHUT_RDWR)
        assert cluster.ask(ListTransactionsRequest(), ListTransactionsResponse) == ListTransactionsResponse()
    assert [key for key, _ in second.asked] == [18, 66]


def test_a_broker_that_does_not_answer_is_named_and_the_others_are_asked() -> None:
    with peer(SmallBroker({})) as target, open_cluster(target) as cluster:
        assert read_log_dirs(cluster, ["t"]) == LogDirs((), {7: "connection refused"})


def test_a_coordinator_that_is_not_ready_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0)
    broker = SmallBroker({10: (0, 6)})
    broker.coordinator_errors = [WireError.COORDINATOR_NOT_AVAILABLE, WireError.COORDINATOR_LOAD_IN_PROGRESS]
    with peer(broker) as target, open_cluster(target) as cluster:
        assert cluster.coordinator(TRANSACTION, "t") == 7
        broker.coordinator_errors = [WireError.INVALID_REQUEST]
        with pytest.raises(AdminError, match="INVALID_REQUEST"):
            cluster.coordinator(TRANSACTION, "t")


def test_patience_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RETRY_S", 0)
    monkeypatch.setattr(module, "REQUEST_TIMEOUT_S", 0)
    assert retry_transient(lambda: int(WireError.NOT_COORDINATOR), lambda code: code) == WireError.NOT_COORDINATOR


def test_a_broker_that_is_not_there_is_named() -> None:
    with (
        peer(SmallBroker({})) as target,
        open_cluster(target) as cluster,
        pytest.raises(NoSuchBroker, match="no broker 9") as raised,
    ):
        cluster.broker(9)
    assert raised.value.known == [7]


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (lambda frame: b"", "closed the connection"),
        (lambda frame: b"HTTP/1.1 400 Bad Request\r\n\r\n", "not respond like a Kafka broker"),
        (lambda frame: struct.pack(">i", -5), "not respond like a Kafka broker"),
        (lambda frame: struct.pack(">i", 0), "not respond like a Kafka broker"),
        (lambda frame: struct.pack(">ii", 4, 99), "responded with correlation id 99, expected 1"),
        (lambda frame: struct.pack(">ii", 4, 1), "not respond like a Kafka broker"),
        (lambda frame: struct.pack(">iih", 6, 1, 0), "ends too early"),
    ],
)
def test_what_is_no_broker(answer: Answer, words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_probe, "PROBE_S", 0.1)  # the peer waits for the rest of a TLS greeting
    with peer(answer) as target, pytest.raises(AdminError, match=words), open_cluster(target):
        pass


def test_nobody_listens() -> None:
    with pytest.raises(Unreachable, match="refused"), open_cluster(Target("127.0.0.1:1,127.0.0.1:1")):
        pass
    with pytest.raises(InvalidAddress, match="no broker address"), open_cluster(Target(",")):
        pass


@pytest.mark.parametrize(
    ("properties", "words"),
    [
        ({"security.protocol": "SASL_SSL"}, "SASL GSSAPI is not supported"),
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "SASL OAUTHBEARER is not supported"),
        ({"security.protocol": "ssl", "ssl.keystore.location": "x.p12"}, r"ssl\.keystore\.location is not supported"),
        (
            {"security.protocol": "ssl", "enable.ssl.certificate.verification": "false"},
            r"enable\.ssl\S+ is not supported",
        ),
        ({"security.protocol": "tls"}, "none of plaintext, ssl"),
    ],
)
def test_security_is_refused_rather_than_ignored(properties: dict[str, str], words: str) -> None:
    with pytest.raises(AdminError, match=words), open_cluster(Target("127.0.0.1:1", properties)):
        pass


def test_librdkafkas_properties_are_understood() -> None:
    login = {"sasl.mechanisms": "scram-sha-512", "sasl.username": "ann", "sasl.password": "pw"}
    tls = {"ssl.ca.location": "ca.pem", "ssl.certificate.pem": "-----BEGIN", "ssl.key.location": "k.pem"}
    assert read_security({}) == Security()
    assert read_security({"security.protocol": "sasl_plaintext", **login}) == Security(
        None, Sasl("SCRAM-SHA-512", "ann", "pw")
    )
    anybody = {"ssl.endpoint.identification.algorithm": "none"}
    both = read_security({"security.protocol": "SASL_SSL", **login, **tls, **anybody})
    assert both.tls == Tls("ca.pem", "-----BEGIN", "k.pem", None, check_host_name=False)


def test_errors_of_other_brokers_keep_their_number() -> None:
    assert str(refused(WireError.INVALID_REQUEST, "no")) == "no (INVALID_REQUEST)"
    assert str(refused(31_000, "no")) == "no (error 31000)"


def test_a_reader_that_left_is_no_broker_out_of_reach() -> None:
    with peer(SmallBroker({})) as target, pytest.raises(BrokenPipeError), open_cluster(target):
        raise BrokenPipeError
