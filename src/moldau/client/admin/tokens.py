"""Delegation tokens of the logged-in user: create, list, renew and expire them."""

import base64
from collections.abc import Sequence
from dataclasses import dataclass, field

from moldau.base.errors import WireError
from moldau.base.session import Principal
from moldau.client.admin.cluster import Cluster, retry_transient
from moldau.client.admin.errors import InvalidArgument, NoSuchToken, refused
from moldau.security.tokens import read_principal
from moldau.wire.messages.create_delegation_token import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from moldau.wire.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

AT_ONCE = -1


@dataclass(frozen=True, slots=True)
class Token:
    """`hmac` is the token's password, in base64."""

    id: str
    hmac: str = field(repr=False)
    owner: str
    renewers: tuple[str, ...]
    issued_ms: int
    expires_ms: int
    latest_ms: int


def create_token(cluster: Cluster, renewers: Sequence[str], life_ms: int | None, owner: str | None = None) -> Token:
    """Of this owner, or of the logged-in user."""
    principals = [_principal(each) for each in renewers]
    other = None if owner is None else _principal(owner)
    request = CreateDelegationTokenRequest(
        owner_principal_type=None if other is None else other.kind,
        owner_principal_name=None if other is None else other.name,
        renewers=tuple(CreatableRenewer(principal_type=each.kind, principal_name=each.name) for each in principals),
        max_lifetime_ms=-1 if life_ms is None else life_ms,
    )
    made = retry_transient(
        lambda: cluster.ask(request, CreateDelegationTokenResponse), lambda response: response.error_code
    )
    _check(made.error_code, "cannot create a delegation token")
    return Token(
        made.token_id,
        base64.b64encode(made.hmac).decode(),
        f"{made.principal_type}:{made.principal_name}",
        tuple(map(str, principals)),
        made.issue_timestamp_ms,
        made.expiry_timestamp_ms,
        made.max_timestamp_ms,
    )


def list_tokens(cluster: Cluster) -> list[Token]:
    """The tokens that the user may see, the first to expire first."""
    found = cluster.ask(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse)
    _check(found.error_code, "cannot list delegation tokens")
    tokens = [
        Token(
            each.token_id,
            base64.b64encode(each.hmac).decode(),
            f"{each.principal_type}:{each.principal_name}",
            tuple(f"{renewer.principal_type}:{renewer.principal_name}" for renewer in each.renewers),
            each.issue_timestamp,
            each.expiry_timestamp,
            each.max_timestamp,
        )
        for each in found.tokens
    ]
    return sorted(tokens, key=lambda token: token.expires_ms)


def renew_token(cluster: Cluster, token_id: str, period_ms: int | None) -> int:
    """Returns when it expires now, in milliseconds since the Unix epoch."""
    request = RenewDelegationTokenRequest(hmac=_hmac(cluster, token_id), renew_period_ms=period_ms or -1)
    done = retry_transient(
        lambda: cluster.ask(request, RenewDelegationTokenResponse), lambda response: response.error_code
    )
    _check(done.error_code, f"cannot renew {token_id!r}")
    return done.expiry_timestamp_ms


def expire_token(cluster: Cluster, token_id: str, after_ms: int = AT_ONCE) -> None:
    request = ExpireDelegationTokenRequest(hmac=_hmac(cluster, token_id), expiry_time_period_ms=after_ms)
    done = retry_transient(
        lambda: cluster.ask(request, ExpireDelegationTokenResponse), lambda response: response.error_code
    )
    _check(done.error_code, f"cannot expire {token_id!r}")


def _hmac(cluster: Cluster, token_id: str) -> bytes:
    """By the id: an HMAC in a command line would be in the list of processes."""
    for token in list_tokens(cluster):
        if token.id == token_id:
            return base64.b64decode(token.hmac)
    raise NoSuchToken(token_id)


def _principal(text: str) -> Principal:
    try:
        return read_principal(text)
    except ValueError:
        raise InvalidArgument(f"{text!r} is no principal; write it as User:name") from None


def _check(code: int, problem: str) -> None:
    if code:
        known = next((f": {error.doc.rstrip('.')}" for error in WireError if error == code), "")
        raise refused(code, problem + known)
