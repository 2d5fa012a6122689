"""RenewDelegationToken (KIP-48): extend the life of a token. The HMAC identifies it."""

from moldau.wire.declare import BYTES, INT16, INT32, INT64, message, wire


@message(key=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenRequest:
    hmac: bytes = wire(BYTES)
    renew_period_ms: int = wire(INT64)


@message(key=39, versions=(1, 2), flexible=2)
class RenewDelegationTokenResponse:
    error_code: int = wire(INT16)
    expiry_timestamp_ms: int = wire(INT64, default=0)
    throttle_time_ms: int = wire(INT32, default=0)
