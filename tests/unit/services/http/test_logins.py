"""Logins that brokers check: claims of tokens, and the bounds. Right and wrong passwords are in tests/services."""

import asyncio
import base64
import json

import pytest

from moldau.client.direct.security import PLAINTEXT
from moldau.services.http import logins
from moldau.services.http.authentication import BasicLogin
from moldau.services.http.logins import BrokerLogins, claim_of
from moldau.services.http.problems import HttpProblem

ADA = BasicLogin("ada", "secret")
NOWHERE = [("127.0.0.1", 1)]


def token(claims: object) -> str:
    return "e30." + base64.urlsafe_b64encode(json.dumps(claims).encode()).decode().rstrip("=") + ".x"


def test_claims_of_tokens() -> None:
    assert claim_of(token({"sub": "ada"}), "sub") == "ada"
    assert claim_of(token({"name": "ada"}), "sub") == ""
    for text in ("", "x", "a.!.c", "a.e30", token([]), token("x")):
        assert claim_of(text, "sub") == ""


def ask(found: BrokerLogins) -> HttpProblem:
    try:
        with pytest.raises(HttpProblem) as refused:
            asyncio.run(found.user_of(ADA))
    finally:
        found.close()
    return refused.value


def test_without_a_broker_nobody_can_tell() -> None:
    problem = ask(BrokerLogins(NOWHERE, PLAINTEXT))
    assert (problem.status, problem.retry_after_s) == (503, 1)
    assert "No broker can check the login" in problem.message


def test_too_many_logins_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "WAITING_LOGINS", 0)
    assert "Too many logins" in ask(BrokerLogins(NOWHERE, PLAINTEXT)).message


def test_remembered_logins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "REMEMBERED_LOGINS", 2)
    found = BrokerLogins(NOWHERE, PLAINTEXT)
    try:
        for name in ("a", "b", "c"):
            found._remember(found._digest(BasicLogin(name, "x")), name)
        assert len(found._right) == 2
        assert asyncio.run(found.user_of(BasicLogin("c", "x"))) == "c"
    finally:
        found.close()
