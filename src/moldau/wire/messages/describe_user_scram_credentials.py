"""DescribeUserScramCredentials: the SCRAM mechanisms and iterations of users (KIP-554)."""

from moldau.wire.declare import INT8, INT16, INT32, STRING, Array, message, struct, wire


@struct
class UserName:
    name: str = wire(STRING)


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsRequest:
    users: tuple[UserName, ...] | None = wire(Array(UserName), nullable=0)  # None or empty: all


@struct
class CredentialInfo:
    mechanism: int = wire(INT8)  # 1: SCRAM-SHA-256, 2: SCRAM-SHA-512
    iterations: int = wire(INT32)


@struct
class DescribeUserScramCredentialsResult:
    user: str = wire(STRING)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    credential_infos: tuple[CredentialInfo, ...] = wire(Array(CredentialInfo), default=())


@message(key=50, versions=(0, 0), flexible=0)
class DescribeUserScramCredentialsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)
    results: tuple[DescribeUserScramCredentialsResult, ...] = wire(Array(DescribeUserScramCredentialsResult))
