"""TLS and HTTP on a Kafka listener are named in one log line, however often the client tries."""

import logging
import ssl

import pytest

from moldau.base.session import Session
from moldau.net import foreign
from support.net.loops import Served, on_both_loops, request, request_limits, run


def client_hello() -> bytes:
    """What a TLS client sends first."""
    context = ssl.create_default_context()
    outgoing = ssl.MemoryBIO()
    client = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="broker.example")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()


TLS = "TLS handshake on a PLAINTEXT listener (PLAINTEXT); set security.protocol=PLAINTEXT in the client's configuration"
HTTP = "HTTP request on a PLAINTEXT listener (PLAINTEXT); this port speaks the Kafka protocol only"
GREETINGS = {
    "TLS": (client_hello(), TLS),
    "GET": (b"GET /metrics HTTP/1.1\r\nHost: broker:9092\r\n\r\n", HTTP),
    "POST": (b"POST / HTTP/1.1\r\nHost: broker:9092\r\nContent-Length: 0\r\n\r\n", HTTP),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", HTTP),
}


@on_both_loops
@pytest.mark.parametrize("kind", GREETINGS)
def test_a_greeting_is_named_once(loop_kind: str, kind: str, caplog: pytest.LogCaptureFixture) -> None:
    sent, expected = GREETINGS[kind]

    async def main() -> None:
        limits = request_limits()
        for _ in range(20):
            served = Served(limits)
            await served.peer.send(sent)
            assert await served.peer.ended()
            served.peer.close()
        other = Served(limits)
        await other.peer.send(request(1))
        assert await other.peer.numbers(1) == [1]
        other.close()

    with caplog.at_level(logging.INFO, "moldau.net"):
        run(loop_kind, main())
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith(f"Closing connection from peer: {expected}")


def test_other_bytes_are_nothing_known() -> None:
    session = Session("PLAINTEXT", "peer")
    for head in (b"", b"\x16", b"\x00\x00\x16\x03", b"\x7f\xff\xff\xff", b"SSH-", b"\xff\xff\xff\xfb"):
        assert foreign.describe(head, session) == ""
