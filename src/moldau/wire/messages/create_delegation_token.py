"""CreateDelegationToken (KIP-48). Version 3 adds an owner other than the requester (KIP-373)."""

from moldau.wire.declare import BYTES, INT16, INT32, INT64, STRING, Array, message, struct, wire


@struct
class CreatableRenewer:
    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@message(key=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenRequest:
    owner_principal_type: str | None = wire(STRING, since=3, nullable=3, default=None)
    owner_principal_name: str | None = wire(STRING, since=3, nullable=3, default=None)
    renewers: tuple[CreatableRenewer, ...] = wire(Array(CreatableRenewer))
    max_lifetime_ms: int = wire(INT64)  # -1: delegation.token.max.lifetime.ms


@message(key=38, versions=(1, 3), flexible=2)
class CreateDelegationTokenResponse:
    error_code: int = wire(INT16)
    principal_type: str = wire(STRING, default="")
    principal_name: str = wire(STRING, default="")
    token_requester_principal_type: str = wire(STRING, since=3, default="", ignorable=True)
    token_requester_principal_name: str = wire(STRING, since=3, default="", ignorable=True)
    issue_timestamp_ms: int = wire(INT64, default=0)
    expiry_timestamp_ms: int = wire(INT64, default=0)
    max_timestamp_ms: int = wire(INT64, default=0)
    token_id: str = wire(STRING, default="")
    hmac: bytes = wire(BYTES, default=b"")
    throttle_time_ms: int = wire(INT32, default=0)
