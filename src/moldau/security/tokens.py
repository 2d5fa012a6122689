"""Delegation tokens (KIP-48): their document, HMAC, and the rules for creating, renewing and expiring them.

A token's HMAC is its password. It is derived from the cluster's secret key, and is in no document.
"""

import base64
import hmac
import json
from dataclasses import dataclass, replace
from typing import Final

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Principal

DIGEST: Final = "sha512"
VERSION: Final = 3
USER: Final = "User"
AT_ONCE: Final = -1  # an expiry period: delete the token now


@dataclass(frozen=True, slots=True)
class DelegationToken:
    id: str
    owner: Principal
    requester: Principal
    renewers: tuple[Principal, ...]
    issued_ms: int
    expires_ms: int  # unless it is renewed
    latest_ms: int  # the end of its life, renewed or not

    def over(self, now_ms: int) -> bool:
        return now_ms > self.expires_ms or now_ms > self.latest_ms

    def may_renew(self, principal: Principal) -> bool:
        return principal == self.owner or principal in self.renewers

    def may_see(self, principal: Principal) -> bool:
        return self.may_renew(principal) or principal == self.requester


@dataclass(frozen=True, slots=True)
class TokenRules:
    """The settings of delegation tokens. No secret: the cluster has none."""

    secret: str | None
    max_life_ms: int  # delegation.token.max.lifetime.ms
    renewal_ms: int  # delegation.token.expiry.time.ms


def hmac_of(secret: str, token_id: str) -> bytes:
    return hmac.digest(secret.encode(), token_id.encode(), DIGEST)


def password_of(secret: str, token_id: str) -> bytes:
    """The password of a SCRAM login with the token."""
    return base64.b64encode(hmac_of(secret, token_id))


def create(
    rules: TokenRules,
    token_id: str,
    owner: Principal,
    requester: Principal,
    renewers: tuple[Principal, ...],
    life_ms: int,
    now_ms: int,
) -> DelegationToken | Refusal:
    """A new token. `life_ms` up to 0 stands for the longest life."""
    if rules.secret is None:
        return Refusal.of(WireError.DELEGATION_TOKEN_AUTH_DISABLED)
    if any(each.kind != USER for each in renewers):
        return Refusal.of(WireError.INVALID_PRINCIPAL_TYPE)
    latest_ms = now_ms + (min(rules.max_life_ms, life_ms) if life_ms > 0 else rules.max_life_ms)
    expires_ms = min(latest_ms, now_ms + rules.renewal_ms)
    return DelegationToken(token_id, owner, requester, renewers, now_ms, expires_ms, latest_ms)


def renew(
    rules: TokenRules, token: DelegationToken | None, principal: Principal, period_ms: int, now_ms: int
) -> DelegationToken | Refusal:
    if (wrong := _unusable(rules, token, principal, now_ms)) is not None:
        return wrong
    assert token is not None
    more_ms = min(rules.renewal_ms, period_ms) if period_ms > 0 else rules.renewal_ms
    return replace(token, expires_ms=min(token.latest_ms, now_ms + more_ms))


def expire(
    rules: TokenRules, token: DelegationToken | None, principal: Principal, period_ms: int, now_ms: int
) -> DelegationToken | Refusal | None:
    """The token with another expiry time; None if it is deleted now."""
    if (wrong := _unusable(rules, token, principal, now_ms)) is not None:
        return wrong
    assert token is not None
    if period_ms < 0:
        return None
    return replace(token, expires_ms=min(token.latest_ms, now_ms + period_ms))


def _unusable(rules: TokenRules, token: DelegationToken | None, principal: Principal, now_ms: int) -> Refusal | None:
    if rules.secret is None:
        return Refusal.of(WireError.DELEGATION_TOKEN_AUTH_DISABLED)
    if token is None:
        return Refusal.of(WireError.DELEGATION_TOKEN_NOT_FOUND)
    if token.over(now_ms):
        return Refusal.of(WireError.DELEGATION_TOKEN_EXPIRED)
    return None if token.may_renew(principal) else Refusal.of(WireError.DELEGATION_TOKEN_OWNER_MISMATCH)


# ── documents ──


def write_token(token: DelegationToken) -> str:
    """The token's document, as Kafka kept it on ZooKeeper."""
    fields = {
        "version": VERSION,
        "owner": str(token.owner),
        "tokenRequester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issueTimestamp": token.issued_ms,
        "maxTimestamp": token.latest_ms,
        "expiryTimestamp": token.expires_ms,
        "tokenId": token.id,
    }
    return json.dumps(fields, separators=(",", ":"))


def read_token(text: str) -> DelegationToken | None:
    """A token from its document; None if the document is damaged."""
    try:
        found = json.loads(text)
        owner = read_principal(found["owner"])
        return DelegationToken(
            id=str(found["tokenId"]),
            owner=owner,
            requester=read_principal(found.get("tokenRequester", str(owner))),
            renewers=tuple(read_principal(each) for each in found["renewers"]),
            issued_ms=int(found["issueTimestamp"]),
            expires_ms=int(found["expiryTimestamp"]),
            latest_ms=int(found["maxTimestamp"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def read_principal(text: str) -> Principal:
    """A principal as Kafka writes it, `User:alice`; ValueError if it is none."""
    kind, found, name = text.partition(":")
    if not (kind and found and name):
        raise ValueError("a principal is written as Type:name")
    return Principal(kind, name)
