"""DescribeDelegationToken (KIP-48): tokens that the user owns, requested or may renew. Version 3 adds the requester."""

from moldau.wire.declare import BYTES, INT16, INT32, INT64, STRING, Array, message, struct, wire


@struct
class TokenOwner:
    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@message(key=41, versions=(1, 3), flexible=2)
class DescribeDelegationTokenRequest:
    owners: tuple[TokenOwner, ...] | None = wire(Array(TokenOwner), nullable=1)  # None: of any owner


@struct
class TokenRenewer:
    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)


@struct
class DescribedDelegationToken:
    principal_type: str = wire(STRING)
    principal_name: str = wire(STRING)
    token_requester_principal_type: str = wire(STRING, since=3, default="", ignorable=True)
    token_requester_principal_name: str = wire(STRING, since=3, default="", ignorable=True)
    issue_timestamp: int = wire(INT64)
    expiry_timestamp: int = wire(INT64)
    max_timestamp: int = wire(INT64)
    token_id: str = wire(STRING)
    hmac: bytes = wire(BYTES)
    renewers: tuple[TokenRenewer, ...] = wire(Array(TokenRenewer))


@message(key=41, versions=(1, 3), flexible=2)
class DescribeDelegationTokenResponse:
    error_code: int = wire(INT16)
    tokens: tuple[DescribedDelegationToken, ...] = wire(Array(DescribedDelegationToken), default=())
    throttle_time_ms: int = wire(INT32, default=0)
