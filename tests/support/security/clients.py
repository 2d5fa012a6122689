"""One connection to a broker, Moldau or Apache Kafka, with or without SASL PLAIN, for messages of the wire layer."""

import socket
import struct

from moldau.wire.codec import decode, encode
from moldau.wire.declare import layout_of
from moldau.wire.headers import pack_request_header
from moldau.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from moldau.wire.messages.registry import BY_KEY
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

SASL = {17: SaslHandshakeResponse, 36: SaslAuthenticateResponse}


class Client:
    def __init__(self, address: str, login: tuple[str, str] | None = None) -> None:
        host, _, port = address.rpartition(":")
        self._socket = socket.create_connection((host, int(port)), timeout=20)
        if login is not None:
            user, password = login
            self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            answered = self.ask(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2)
            assert isinstance(answered, SaslAuthenticateResponse)
            assert answered.error_code == 0, answered

    def ask(self, request: object, version: int) -> object:
        self.send(request, version)
        return self.receive(request, version)

    def send(self, request: object, version: int) -> None:
        frame = pack_request_header(layout_of(type(request)).key, version, 7, "matrix") + encode(request, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)

    def receive(self, request: object, version: int) -> object:
        """The response to a request that was sent."""
        layout = layout_of(type(request))
        (size,) = struct.unpack(">i", self._read(4))
        body = self._read(size)
        flexible = layout.flexible is not None and version >= layout.flexible and layout.key != 18
        response = SASL[layout.key] if layout.key in SASL else BY_KEY[layout.key].response
        answered: object = decode(response, version, memoryview(body), 5 if flexible else 4)
        return answered

    def close(self) -> None:
        self._socket.close()

    def _read(self, size: int) -> bytes:
        read = b""
        while len(read) < size:
            piece = self._socket.recv(size - len(read))
            if not piece:
                raise ConnectionError("the broker closed the connection")
            read += piece
        return read


WAITING = 12  # the version of Fetch requests that wait


def waiting_fetch(topic: str) -> FetchRequest:
    """A Fetch from the start of a topic's first partition, which waits for its first record."""
    partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1_000_000)
    return FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=(FetchTopic(topic=topic, partitions=(partition,)),))


def fetched(answered: object) -> tuple[int, bool]:
    """The error of the first partition, and whether it has records."""
    assert isinstance(answered, FetchResponse)
    found = answered.responses[0].partitions[0]
    return found.error_code, bool(found.records)
