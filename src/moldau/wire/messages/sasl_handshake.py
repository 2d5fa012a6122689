"""SaslHandshake: the SASL mechanism of a client. After version 1 SaslAuthenticate follows."""

from moldau.wire.declare import INT16, STRING, Array, message, wire


@message(key=17, versions=(0, 1), flexible=None)
class SaslHandshakeRequest:
    mechanism: str = wire(STRING)


@message(key=17, versions=(0, 1), flexible=None)
class SaslHandshakeResponse:
    error_code: int = wire(INT16)
    mechanisms: tuple[str, ...] = wire(Array(STRING))
