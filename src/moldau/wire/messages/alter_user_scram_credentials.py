"""AlterUserScramCredentials: set and delete SCRAM credentials (KIP-554). Passwords come hashed with their salt."""

from moldau.wire.declare import BYTES, INT8, INT16, INT32, STRING, Array, message, struct, wire


@struct
class ScramCredentialDeletion:
    name: str = wire(STRING)
    mechanism: int = wire(INT8)


@struct
class ScramCredentialUpsertion:
    name: str = wire(STRING)
    mechanism: int = wire(INT8)
    iterations: int = wire(INT32)
    salt: bytes = wire(BYTES)
    salted_password: bytes = wire(BYTES)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsRequest:
    deletions: tuple[ScramCredentialDeletion, ...] = wire(Array(ScramCredentialDeletion))
    upsertions: tuple[ScramCredentialUpsertion, ...] = wire(Array(ScramCredentialUpsertion))


@struct
class AlterUserScramCredentialsResult:
    user: str = wire(STRING)
    error_code: int = wire(INT16, default=0)
    error_message: str | None = wire(STRING, nullable=0, default=None)


@message(key=51, versions=(0, 0), flexible=0)
class AlterUserScramCredentialsResponse:
    throttle_time_ms: int = wire(INT32, default=0)
    results: tuple[AlterUserScramCredentialsResult, ...] = wire(Array(AlterUserScramCredentialsResult))
