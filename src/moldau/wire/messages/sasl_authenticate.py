"""SaslAuthenticate: one step of a SASL exchange. Version 1 adds the session lifetime (KIP-368)."""

from moldau.wire.declare import BYTES, INT16, INT64, STRING, message, wire


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateRequest:
    auth_bytes: bytes = wire(BYTES)


@message(key=36, versions=(0, 2), flexible=2)
class SaslAuthenticateResponse:
    error_code: int = wire(INT16)
    error_message: str | None = wire(STRING, nullable=0)
    auth_bytes: bytes = wire(BYTES)
    session_lifetime_ms: int = wire(INT64, since=1, default=0, ignorable=True)  # 0: unlimited
