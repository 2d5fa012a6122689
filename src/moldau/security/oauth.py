"""OAUTHBEARER (RFC 7628): the messages of an exchange and the rules for a token's claims. Verifies no signature.

`verify` is given by the caller: it checks the signature and returns the claims, or why the token is refused.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeGuard

from moldau.security.organisations import NAME
from moldau.security.sasl import Authenticated, Challenge, Failed, NeedsWork, Outcome
from moldau.security.scram import read_name

Claims: TypeAlias = Mapping[str, object]
Verify: TypeAlias = Callable[[str], Claims | str]

INVALID_TOKEN: Final = '{"status":"invalid_token"}'
SEPARATOR: Final = "\x01"
_AUTHORIZATION = re.compile(r"bearer +(?P<token>[-._~+/A-Za-z0-9]+=*)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ClaimRules:
    """The settings that a token's claims are checked by. No issuer or audience: any is accepted."""

    issuer: str | None
    audiences: tuple[str, ...]
    scope_claim: str
    subject_claim: str
    skew_s: int
    organisation_claim: str = ""  # whose value is put before the subject: acme/alice


@dataclass(frozen=True, slots=True)
class Bearer:
    """What a valid token says."""

    subject: str
    expires_ms: int
    scopes: frozenset[str]


def check_claims(claims: Claims, rules: ClaimRules, now_ms: int) -> Bearer | str:
    """The bearer, or why the token is refused: a text without the token's own values."""
    expires, issued, start = (claims.get(name) for name in ("exp", "iat", "nbf"))
    now_s = now_ms / 1000
    if not _is_time(expires):
        return "the token has no expiration time (exp)"
    if now_s - rules.skew_s >= expires:
        return "the token has expired"
    if _is_time(issued) and issued > now_s + rules.skew_s:
        return "the token was issued in the future (iat)"
    if _is_time(start) and start > now_s + rules.skew_s:
        return "the token is not valid yet (nbf)"
    if rules.issuer is not None and claims.get("iss") != rules.issuer:
        return "the token's issuer (iss) is not sasl.oauthbearer.expected.issuer"
    if rules.audiences and not _words(claims.get("aud"), split=False) & set(rules.audiences):
        return "the token's audience (aud) has none of sasl.oauthbearer.expected.audience"
    subject = claims.get(rules.subject_claim)
    if not isinstance(subject, str) or not subject.strip():
        return f"the token has no claim {rules.subject_claim}"
    user = _with_organisation(subject.strip(), claims, rules.organisation_claim)
    if user is None:
        return f"the token's claim {rules.organisation_claim} or its subject cannot be part of a user's name"
    return Bearer(user, int(expires * 1000), _words(claims.get(rules.scope_claim), split=True))


def _with_organisation(subject: str, claims: Claims, claim: str) -> str | None:
    """The user's name, with its organisation if a claim names it. None: the two cannot be told apart."""
    if not claim:
        return subject
    organisation = claims.get(claim)
    if "/" in subject or (organisation is not None and not _is_organisation(organisation)):
        return None
    return subject if organisation is None else f"{organisation}/{subject}"


def _is_organisation(value: object) -> bool:
    return isinstance(value, str) and NAME.fullmatch(value) is not None


def _is_time(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12


def _words(value: object, *, split: bool) -> frozenset[str]:
    """A claim that is one text or a list of them; a scope is a text with spaces between its words."""
    if isinstance(value, str):
        return frozenset(value.split() if split else [value])
    return frozenset(each for each in value if isinstance(each, str)) if isinstance(value, list) else frozenset()


class OAuthExchange:
    """The client's token; if it is refused, the reason as JSON, and one more message of the client."""

    __slots__ = ("_now", "_refused", "_rules", "_verify")

    def __init__(self, verify: Verify, rules: ClaimRules, now: Callable[[], int]) -> None:
        self._verify = verify
        self._rules = rules
        self._now = now  # milliseconds since the Unix epoch
        self._refused = ""

    def step(self, data: bytes) -> Outcome:
        if self._refused:
            return Failed(self._refused, INVALID_TOKEN)
        first = read_first(data)
        if isinstance(first, Failed):
            return first
        authorization, token = first
        return NeedsWork(lambda: self._check(authorization, token))

    def _check(self, authorization: str, token: str) -> Challenge | Authenticated | Failed:
        claims = self._verify(token)
        bearer = claims if isinstance(claims, str) else check_claims(claims, self._rules, self._now())
        if isinstance(bearer, str):
            self._refused = bearer
            return Challenge(INVALID_TOKEN.encode())
        if authorization not in ("", bearer.subject):
            return Failed(
                "the client asked for the identity of another user",
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name",
            )
        return Authenticated(bearer.subject, expires_ms=bearer.expires_ms)


def read_first(data: bytes) -> tuple[str, str] | Failed:
    """Authorization id and token of the client's first message."""
    malformed = Failed("malformed OAUTHBEARER message")
    try:
        header, *pairs = data.decode().split(SEPARATOR)
    except UnicodeDecodeError:
        return malformed
    flag, authorization, *rest = [*header.split(","), "", ""]
    name = read_name(authorization.removeprefix("a=")) if not authorization or authorization[:2] == "a=" else None
    if flag not in ("n", "y") or name is None or any(rest) or pairs[-2:] != ["", ""]:
        return malformed
    said = dict(pair.partition("=")[::2] for pair in pairs[:-2])
    found = _AUTHORIZATION.fullmatch(said.get("auth", ""))
    return malformed if found is None else (name, found["token"])
