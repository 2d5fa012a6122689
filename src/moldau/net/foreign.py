"""Other protocols on a plaintext Kafka listener: recognise TLS and HTTP by their first bytes, and say what to do.

An encrypting channel rejects strangers in its handshake, before there are bytes to look at.
"""

from moldau.base.session import Session

_TLS_HANDSHAKE = b"\x16\x03"
_HTTP_METHODS = (b"GET ", b"HEAD", b"POST", b"PUT ", b"DELE", b"CONN", b"OPTI", b"TRAC", b"PATC", b"PRI ")


def describe(head: bytes, session: Session) -> str:
    """Name the protocol of a client by the bytes in the place of a request's length; "" if it is none of these."""
    protocol = session.security_protocol.value
    if head.startswith(_TLS_HANDSHAKE):
        return (
            f"TLS handshake on a {protocol} listener ({session.listener}); "
            f"set security.protocol={protocol} in the client's configuration"
        )
    if head in _HTTP_METHODS:
        return (
            f"HTTP request on a {protocol} listener ({session.listener}); this port speaks the Kafka protocol only, "
            "so point browsers, health checks and scrapers at another port"
        )
    return ""
