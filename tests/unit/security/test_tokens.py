"""Delegation tokens: the rules of their lives, and their documents."""

import pytest

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Principal
from moldau.security.tokens import (
    DelegationToken,
    TokenRules,
    create,
    expire,
    hmac_of,
    password_of,
    read_token,
    renew,
    write_token,
)

RULES = TokenRules("secret", max_life_ms=1000, renewal_ms=100)
ALICE, BOB, EVE = (Principal("User", name) for name in ("alice", "bob", "eve"))
TOKEN = DelegationToken("id", ALICE, ALICE, (BOB,), 0, 100, 1000)


def error(outcome: object) -> WireError | None:
    return outcome.error if isinstance(outcome, Refusal) else None


def test_the_life_of_a_token() -> None:
    assert create(RULES, "id", ALICE, ALICE, (BOB,), -1, 0) == TOKEN
    short = create(RULES, "id", ALICE, ALICE, (BOB,), 50, 0)
    assert isinstance(short, DelegationToken)
    assert (short.expires_ms, short.latest_ms) == (50, 50)
    renewed = renew(RULES, TOKEN, BOB, -1, 90)
    assert isinstance(renewed, DelegationToken)
    assert renewed.expires_ms == 190
    late = renew(RULES, DelegationToken("id", ALICE, ALICE, (), 0, 1000, 1000), ALICE, 80, 990)
    assert isinstance(late, DelegationToken)
    assert late.expires_ms == 1000
    assert expire(RULES, TOKEN, ALICE, -1, 50) is None
    sooner = expire(RULES, TOKEN, ALICE, 10, 50)
    assert isinstance(sooner, DelegationToken)
    assert sooner.expires_ms == 60


def test_refusals() -> None:
    off = TokenRules(None, 1, 1)
    assert error(create(off, "id", ALICE, ALICE, (), -1, 0)) == WireError.DELEGATION_TOKEN_AUTH_DISABLED
    assert (
        error(create(RULES, "id", ALICE, ALICE, (Principal("Group", "g"),), -1, 0)) == WireError.INVALID_PRINCIPAL_TYPE
    )
    for change in (renew, expire):
        assert error(change(off, TOKEN, ALICE, -1, 0)) == WireError.DELEGATION_TOKEN_AUTH_DISABLED
        assert error(change(RULES, None, ALICE, -1, 0)) == WireError.DELEGATION_TOKEN_NOT_FOUND
        assert error(change(RULES, TOKEN, EVE, -1, 0)) == WireError.DELEGATION_TOKEN_OWNER_MISMATCH
        assert error(change(RULES, TOKEN, ALICE, -1, 101)) == WireError.DELEGATION_TOKEN_EXPIRED


def test_documents() -> None:
    text = write_token(TOKEN)
    assert read_token(text) == TOKEN
    assert password_of("secret", "id").decode() not in text
    assert len(hmac_of("secret", "id")) == 64


@pytest.mark.parametrize("text", ["", "[]", "{}", write_token(TOKEN).replace("User:alice", "alice"), "null"])
def test_damaged_documents(text: str) -> None:
    assert read_token(text) is None


def test_only_those_concerned_see_a_token() -> None:
    token = DelegationToken("id", ALICE, EVE, (BOB,), 0, 1, 1)
    assert [token.may_see(each) for each in (ALICE, BOB, EVE, Principal("User", "x"))] == [True, True, True, False]
    assert [token.may_renew(each) for each in (ALICE, BOB, EVE)] == [True, True, False]
