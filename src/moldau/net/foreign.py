"""Other protocols on a Kafka listener: recognise TLS, HTTP and unencrypted Kafka by their first bytes, and advise."""

from moldau.base.session import Session

_TLS_HANDSHAKE = b"\x16\x03"
_HIGHEST_API_KEY = 127  # with room above those of today
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


def describe_instead_of_tls(head: bytes, listener: str) -> str:
    """Name what a client sent to an encrypted listener in place of a TLS handshake."""
    if head[:4] in _HTTP_METHODS:
        return (
            f"HTTP request on a TLS listener ({listener}); this port speaks the Kafka protocol over TLS, "
            "so point browsers, health checks and scrapers at another port"
        )
    if len(head) >= 8 and not head[0] and int.from_bytes(head[4:6], "big") <= _HIGHEST_API_KEY:
        return (
            f"unencrypted Kafka request on a TLS listener ({listener}); "
            "set security.protocol=SSL or SASL_SSL in the client's configuration"
        )
    return f"no TLS handshake on a TLS listener ({listener}); the first byte was {head[0]:#04x}"
