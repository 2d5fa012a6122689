"""OAUTHBEARER: messages and claims. Signatures are tested with the broker's verifier."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.oauth import INVALID_TOKEN, Bearer, ClaimRules, Claims, OAuthExchange, check_claims, read_first
from moldau.security.sasl import Authenticated, Challenge, Failed, NeedsWork, Outcome

NOW_MS = 1_000_000
RULES = ClaimRules(None, (), "scope", "sub", 30)
STRICT = ClaimRules("https://issuer", ("kafka", "other"), "scp", "client", 0)
GOOD: dict[str, object] = {"sub": "alice", "exp": 2000, "iat": 900, "scope": "read write"}
BEST: dict[str, object] = {
    "client": "alice",
    "exp": 2000,
    "iss": "https://issuer",
    "aud": ["x", "kafka"],
    "scp": ["read"],
}


def test_claims() -> None:
    assert check_claims(GOOD, RULES, NOW_MS) == Bearer("alice", 2_000_000, frozenset({"read", "write"}))
    assert check_claims(BEST, STRICT, NOW_MS) == Bearer("alice", 2_000_000, frozenset({"read"}))
    assert check_claims(BEST | {"aud": "other"}, STRICT, NOW_MS) == Bearer("alice", 2_000_000, frozenset({"read"}))


@pytest.mark.parametrize(
    ("rules", "claims", "why"),
    [
        (RULES, {"exp": None}, "expiration"),
        (RULES, {"exp": "2000"}, "expiration"),
        (RULES, {"exp": True}, "expiration"),
        (RULES, {"exp": 970}, "expired"),
        (RULES, {"iat": 1031}, "future"),
        (RULES, {"nbf": 1031}, "not valid yet"),
        (RULES, {"sub": ""}, "no claim sub"),
        (RULES, {"sub": 7}, "no claim sub"),
        (STRICT, {"iss": "https://other"}, "issuer"),
        (STRICT, {"aud": "kaf"}, "audience"),
        (STRICT, {"aud": None}, "audience"),
        (STRICT, {"client": None}, "no claim client"),
    ],
)
def test_wrong_claims(rules: ClaimRules, claims: dict[str, object], why: str) -> None:
    refused = check_claims((GOOD if rules is RULES else BEST) | claims, rules, NOW_MS)
    assert isinstance(refused, str)
    assert why in refused


@pytest.mark.parametrize("claims", [{"exp": 971}, {"iat": 1030}, {"nbf": 1030}])
def test_the_clocks_may_differ_a_little(claims: dict[str, object]) -> None:
    assert isinstance(check_claims(GOOD | claims, RULES, NOW_MS), Bearer)


def exchange(claims: Claims | str) -> OAuthExchange:
    return OAuthExchange(lambda token: claims, RULES, lambda: NOW_MS)


def step(machine: OAuthExchange, data: bytes) -> Outcome:
    outcome = machine.step(data)
    return outcome.run() if isinstance(outcome, NeedsWork) else outcome


FIRST = b"n,,\x01auth=Bearer abc.def.\x01\x01"


def test_a_token_authenticates_until_it_expires() -> None:
    assert step(exchange(GOOD), FIRST) == Authenticated("alice", expires_ms=2_000_000)
    assert step(exchange(GOOD), FIRST.replace(b"n,,", b"n,a=alice,")) == Authenticated("alice", expires_ms=2_000_000)
    assert isinstance(step(exchange(GOOD), FIRST.replace(b"n,,", b"n,a=root,")), Failed)


@pytest.mark.parametrize("claims", ["wrong signature", {}])
def test_a_refused_token_is_told_as_json_and_fails_with_the_next_message(claims: Claims | str) -> None:
    machine = exchange(claims)
    assert step(machine, FIRST) == Challenge(INVALID_TOKEN.encode())
    outcome = step(machine, b"\x01")
    assert isinstance(outcome, Failed)
    assert outcome.told == INVALID_TOKEN


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"n,,",
        b"n,,\x01auth=Bearer abc",
        b"n,,\x01auth=Bearer abc\x01",
        b"n,,\x01auth=Basic abc\x01\x01",
        b"n,,\x01\x01\x01",
        b"p=x,,\x01auth=Bearer abc\x01\x01",
        b"n,x=1,\x01auth=Bearer abc\x01\x01",
        b"n,,\x01auth=Bearer a b\x01\x01",
        b"\xff",
    ],
)
def test_malformed_messages(data: bytes) -> None:
    assert isinstance(read_first(data), Failed)


def test_extensions_are_accepted() -> None:
    assert read_first(b"n,,\x01auth=Bearer abc\x01traceId=123\x01\x01") == ("", "abc")


@given(st.binary(max_size=64))
def test_any_bytes(data: bytes) -> None:
    assert not isinstance(step(exchange("refused"), data), Authenticated)


OF_ORGANISATIONS = ClaimRules(None, (), "scope", "sub", 30, "org")


@pytest.mark.parametrize(
    ("subject", "organisation", "user"),
    [("alice", "acme", "acme/alice"), ("alice", None, "alice"), ("a/b", "acme", None), ("a/b", None, None)]
    + [("alice", wrong, None) for wrong in ("", "Acme", "a/b", 1)],
)
def test_a_claim_names_the_organisation(subject: str, organisation: object, user: str | None) -> None:
    claims = {"exp": 100, "sub": subject} | ({} if organisation is None else {"org": organisation})
    found = check_claims(claims, OF_ORGANISATIONS, 0)
    assert (found.subject if isinstance(found, Bearer) else None) == user
