"""ExpireDelegationToken (KIP-48): set the end of a token, or delete it now. The HMAC identifies it."""

from moldau.wire.declare import BYTES, INT16, INT32, INT64, message, wire


@message(key=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenRequest:
    hmac: bytes = wire(BYTES)
    expiry_time_period_ms: int = wire(INT64)


@message(key=40, versions=(1, 2), flexible=2)
class ExpireDelegationTokenResponse:
    error_code: int = wire(INT16)
    expiry_timestamp_ms: int = wire(INT64, default=0)
    throttle_time_ms: int = wire(INT32, default=0)
