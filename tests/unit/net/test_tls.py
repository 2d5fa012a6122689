"""TLS connections on real sockets and both loops: handshakes, large records, strangers, floods, goodbyes."""

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from pathlib import Path

import pytest

from moldau.base.session import ANONYMOUS, SecurityProtocol
from moldau.base.slices import FileSlice
from moldau.net import tls_handshakes
from moldau.net.listener import Listeners
from moldau.net.tls_context import NONE, REQUESTED, REQUIRED, server_tls
from moldau.net.tls_handshakes import TlsListener
from moldau.security.principals import read_rules
from moldau.tools.certs.authority import Authority
from support.net.loops import Peer, Script, framed, on_both_loops, request, request_limits, run, turns, until
from support.tls.clients import HOST, TlsPeer, authority, client_side, keystore, settings
from unit.net.test_listener import limits


class Serving:
    """A TLS listener on a free port of 127.0.0.1."""

    def __init__(self, client_auth: str = NONE, rules: str = "DEFAULT", largest: int = 1 << 20, **made: object) -> None:
        self.script = Script()
        self.listeners = Listeners(request_limits(largest), limits())
        self.tls = TlsListener("SSL", server_tls(settings(client_auth=client_auth)).context, read_rules(rules))
        self.port = self.listeners.bind("SSL", "127.0.0.1", 0, SecurityProtocol.SSL, self.tls)
        self.listeners.start(self.script)

    async def plain(self) -> Peer:
        sock = socket.socket()
        sock.setblocking(False)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.port))
        return Peer(sock)

    async def connect(self, context: ssl.SSLContext | None = None, host: str = HOST) -> TlsPeer:
        return await TlsPeer(await self.plain(), context or client_side(), host).handshake()

    async def works(self) -> None:
        peer = await self.connect()
        await peer.send(request(7))
        assert await peer.numbers(1) == [7]
        peer.close()


@pytest.fixture
def alice(tmp_path: Path) -> Path:
    return keystore(tmp_path / "alice.pem", authority().client("alice"))


@pytest.fixture(autouse=True)
def _words(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)


@on_both_loops
def test_requests_and_responses(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        peer = await serving.connect()
        for number in range(3):
            await peer.send(request(number))
        assert await peer.numbers(3) == [0, 1, 2]
        (connection,) = serving.listeners.connections
        assert connection.session.security_protocol is SecurityProtocol.SSL
        assert connection.session.principal is ANONYMOUS
        peer.close()
        await until(lambda: not serving.listeners.connections)
        serving.listeners.close()

    run(loop_kind, main())


@on_both_loops
def test_large_requests_and_responses_pass_through_small_sockets(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving(largest=1 << 24)
        body = os.urandom(5_000_000)
        serving.script.replies[1] = lambda: framed(body)
        peer = await serving.connect()
        for at in range(0, 5_000_000, 100_000):
            if not at:
                await peer.send(request(1, 4_000_000)[:100_000])
            elif at < 4_000_014:
                await peer.send(request(1, 4_000_000)[at : at + 100_000])
        assert await peer.frame() == body
        await peer.send(request(2))
        assert await peer.numbers(1) == [2]
        serving.listeners.close()
        assert await peer.said_goodbye()
        peer.close()

    run(loop_kind, main())


@on_both_loops
def test_many_requests_in_one_record(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        peer = await serving.connect()
        await peer.send(b"".join(request(number, 50) for number in range(2_000)))
        assert await peer.numbers(2_000) == list(range(2_000))
        assert serving.script.seen == list(range(2_000))
        serving.listeners.close()
        peer.close()

    run(loop_kind, main())


@on_both_loops
def test_slices_of_files(loop_kind: str, tmp_path: Path) -> None:
    body = os.urandom(1_500_000)
    (tmp_path / "log").write_bytes(b"head" + body)

    file = open(tmp_path / "log", "rb")  # noqa: SIM115 - the connection reads it
    handle = type("File", (), {"fd": file.fileno()})()
    slice_ = FileSlice(handle, 4, len(body), hot=True)  # type: ignore[arg-type]

    async def main() -> None:
        serving = Serving()
        head = len(body).to_bytes(4, "big")
        serving.script.replies[1] = lambda: [head, slice_]
        peer = await serving.connect()
        await peer.send(request(1))
        assert await peer.frame() == body
        serving.listeners.close()
        peer.close()
        file.close()

    run(loop_kind, main())


@on_both_loops
def test_a_request_that_comes_byte_by_byte(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        plain = await serving.plain()
        peer = TlsPeer(plain, client_side())
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.do_handshake()
        for byte in peer.outgoing.read():
            await plain.send(bytes([byte]))
            await turns(2)
        await peer.handshake()
        peer.tls.write(request(3))
        for byte in peer.outgoing.read():
            await plain.send(bytes([byte]))
        assert await peer.numbers(1) == [3]
        serving.listeners.close()
        peer.close()

    run(loop_kind, main())


@on_both_loops
def test_the_principal_comes_from_the_certificate(loop_kind: str, alice: Path) -> None:
    async def main() -> None:
        for auth, rules, name in (
            (REQUIRED, "DEFAULT", "User:CN=alice"),
            (REQUESTED, "RULE:CN=(.*)/$1/U", "User:ALICE"),
        ):
            serving = Serving(auth, rules)
            peer = await serving.connect(client_side(alice))
            await peer.send(request(1))
            assert await peer.numbers(1) == [1]
            (connection,) = serving.listeners.connections
            assert str(connection.session.principal) == name
            serving.listeners.close()
            peer.close()

    run(loop_kind, main())


async def refused(serving: Serving, context: ssl.SSLContext, host: str = HOST) -> None:
    """The handshake fails, or in TLS 1.3 the first read after it."""
    plain = await serving.plain()
    peer = TlsPeer(plain, context, host)
    try:
        await peer.handshake()
        await peer.exactly(1)
    except (ssl.SSLError, AssertionError, OSError):
        await peer.flush()  # the alert
    else:
        pytest.fail("the connection works")
    await until(lambda: not serving.listeners.connections and not len(serving.listeners._handshakes))
    plain.close()
    await turns()


def others() -> Authority:
    return Authority("Others")


def only_tls12() -> ssl.SSLContext:
    context = client_side()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


@on_both_loops
@pytest.mark.parametrize(
    ("case", "words"),
    [
        ("no certificate", "the client showed no certificate, which ssl.client.auth=required asks for"),
        ("foreign certificate", "the client's certificate is not accepted"),
        ("expired certificate", "the client's certificate is not accepted: certificate has expired"),
        ("unknown authority", "the client does not trust this broker's certificate"),
        ("wrong host", "the client refuses this broker's certificate"),
        ("no rule", "no rule of ssl.principal.mapping.rules matches the client's certificate (CN=alice)"),
        ("old version", "the client speaks none of ssl.enabled.protocols"),
    ],
)
def test_a_refused_handshake_is_one_line(
    loop_kind: str, case: str, words: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        needed = case in ("no certificate", "foreign certificate", "expired certificate", "no rule")
        serving = Serving(REQUIRED if needed else NONE, "RULE:CN=bob/bob/" if case == "no rule" else "DEFAULT")
        context, host = client_side(), HOST
        match case:
            case "foreign certificate":
                foreign = others().client("alice")
                context = client_side(keystore(tmp_path / "c.pem", foreign))
            case "expired certificate":
                context = client_side(keystore(tmp_path / "c.pem", authority().client("alice", days=-1)))
            case "no rule":
                context = client_side(keystore(tmp_path / "c.pem", authority().client("alice")))
            case "unknown authority":
                context = client_side(ca=others().pem)
            case "wrong host":
                host = "elsewhere.example"
            case "old version":
                serving.tls.context.minimum_version = ssl.TLSVersion.TLSv1_3
                context = only_tls12()
        await refused(serving, context, host)
        await until(lambda: caplog.messages)
        serving.listeners.close()

    run(loop_kind, main())
    (line,) = caplog.messages
    assert line.startswith("Closing connection from 127.0.0.1:")
    assert words in line


@on_both_loops
@pytest.mark.parametrize(
    ("sent", "words"),
    [
        (request(1), "unencrypted Kafka request on a TLS listener (SSL); set security.protocol=SSL or SASL_SSL"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP request on a TLS listener (SSL)"),
        (b"\xff\xfe hello", "no TLS handshake on a TLS listener (SSL); the first byte was 0xff"),
        (b"\x16\x03\x01\x00\x05hello", "TLS handshake failed"),
    ],
)
def test_strangers_are_named(loop_kind: str, sent: bytes, words: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        serving = Serving()
        peer = await serving.plain()
        await peer.send(sent)
        while await peer._loop.sock_recv(peer.socket, 4096):
            pass
        peer.close()
        await serving.works()
        serving.listeners.close()

    run(loop_kind, main())
    assert any(words in line for line in caplog.messages), caplog.messages


@on_both_loops
def test_handshakes_that_never_end_are_closed(
    loop_kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tls_handshakes, "TIMEOUT_S", 0.2)

    async def main() -> None:
        serving = Serving()
        silent, half = await serving.plain(), await serving.plain()
        await half.send(b"\x16\x03\x01\x02\x00")
        assert await silent.ended()
        assert await half.ended()
        await serving.works()
        serving.listeners.close()

    run(loop_kind, main())
    assert any("no TLS handshake within" in line for line in caplog.messages)
    assert any("TLS handshake not finished within" in line for line in caplog.messages)


@on_both_loops
def test_a_flood_of_half_handshakes_keeps_nobody_out(loop_kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tls_handshakes, "MAX_HANDSHAKES", 20)

    async def main() -> None:
        serving = Serving()
        flood = []
        for _ in range(60):
            flood.append(await serving.plain())
            await flood[-1].send(b"\x16\x03\x01\x02\x00\x01")
            assert len(serving.listeners._handshakes) <= 20
        await serving.works()
        for peer in flood:
            peer.close()
        serving.listeners.close()
        assert not serving.listeners._per_ip or not serving.listeners.connections

    run(loop_kind, main())


@on_both_loops
def test_a_handshake_without_end_is_bounded_in_bytes(loop_kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        serving = Serving()
        peer = await serving.plain()
        record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(16380)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 1000:
                await peer.send(record)
                sent += 1
                await turns(2)
        assert sent < 1000
        peer.close()
        serving.listeners.close()

    run(loop_kind, main())
    assert any("TLS handshake" in line for line in caplog.messages)


@on_both_loops
def test_renegotiation_is_impossible(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        assert serving.tls.context.options & ssl.OP_NO_RENEGOTIATION
        serving.listeners.close()

    run(loop_kind, main())


@on_both_loops
def test_damaged_records_end_the_connection(loop_kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        serving = Serving()
        peer = await serving.connect()
        await peer._plain.send(b"\x17\x03\x03\x00\x20" + bytes(32))
        assert not await peer.said_goodbye()
        await until(lambda: not serving.listeners.connections)
        serving.listeners.close()
        peer.close()

    run(loop_kind, main())
    assert any("receive failed: TLS: " in line for line in caplog.messages)


@on_both_loops
def test_a_client_that_disappears_while_it_is_sent_to(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        serving.script.replies[1] = lambda: framed(bytes(8_000_000))
        peer = await serving.connect()
        await peer.send(request(1))
        await peer.exactly(100_000)
        peer.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")  # a reset
        peer.close()
        await until(lambda: not serving.listeners.connections)
        await serving.works()
        serving.listeners.close()

    run(loop_kind, main())


@on_both_loops
def test_a_client_that_says_goodbye_is_closed_without_a_line(loop_kind: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        serving = Serving()
        peer = await serving.connect()
        with pytest.raises(ssl.SSLWantReadError):
            peer.tls.unwrap()
        await peer.flush()
        await until(lambda: not serving.listeners.connections)
        peer.close()
        serving.listeners.close()

    run(loop_kind, main())
    assert not caplog.messages


@on_both_loops
def test_new_connections_get_the_new_certificate_and_old_ones_live_on(loop_kind: str) -> None:
    async def main() -> None:
        serving = Serving()
        old = await serving.connect()
        renewed = authority().broker([HOST])
        serving.tls.context = server_tls(settings(renewed)).context
        new = await serving.connect()
        assert new.tls.getpeercert()["serialNumber"] != old.tls.getpeercert()["serialNumber"]  # type: ignore[index]
        for peer in (old, new):
            await peer.send(request(5))
            assert await peer.numbers(1) == [5]
            peer.close()
        serving.listeners.close()

    run(loop_kind, main())
