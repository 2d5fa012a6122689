"""One connection to a broker, Moldau or Apache Kafka, with or without SASL PLAIN, for messages of the wire layer."""

import socket
import struct

from moldau.wire.codec import decode, encode
from moldau.wire.declare import layout_of
from moldau.wire.headers import pack_request_header
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
        layout = layout_of(type(request))
        frame = pack_request_header(layout.key, version, 7, "matrix") + encode(request, version)
        self._socket.sendall(struct.pack(">i", len(frame)) + frame)
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
