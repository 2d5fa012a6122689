"""PLAIN: stored and listed passwords, decoys, and hostile messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security import plain
from moldau.security.plain import INVALID, Hashed, Listed, PlainExchange, Verifier
from moldau.security.sasl import Authenticated, Failed, NeedsWork, Outcome
from moldau.security.scram import new_credential

STORED = Hashed("sha256", new_credential("sha256", "secret", b"salt", 1))
USERS: dict[str, tuple[Verifier, ...]] = {
    "alice": (STORED,),
    "bob": (Listed(b"builder", STORED),),
    "both": (STORED, Listed(b"builder", STORED)),
}


def log_in(data: bytes) -> Outcome:
    outcome = PlainExchange(lambda user: USERS.get(user, ()), lambda user: STORED).step(data)
    return outcome.run() if isinstance(outcome, NeedsWork) else outcome


@pytest.mark.parametrize(
    ("data", "user"),
    [
        (b"\0alice\0secret", "alice"),
        (b"alice\0alice\0secret", "alice"),
        (b"\0bob\0builder", "bob"),
        (b"\0both\0builder", "both"),
        (b"\0both\0secret", "both"),
    ],
)
def test_right_passwords(data: bytes, user: str) -> None:
    assert log_in(data) == Authenticated(user)


@pytest.mark.parametrize("data", [b"\0alice\0wrong", b"\0bob\0secret", b"\0bob\0wrong", b"\0nobody\0wrong"])
def test_wrong_passwords_and_unknown_users_fail_alike(data: bytes) -> None:
    assert log_in(data) == INVALID


@pytest.mark.parametrize(("data", "user"), [(b"\0alice\0wrong", "alice"), (b"\0nobody\0wrong", "")])
def test_the_audit_is_told_only_of_users_that_there_are(data: bytes, user: str) -> None:
    outcome = log_in(data)
    assert isinstance(outcome, Failed)
    assert outcome.user == user


def test_the_password_of_the_decoy_logs_nobody_in() -> None:
    """An unknown user is hashed with a decoy, and its password is random: here it is known."""
    assert log_in(b"\0nobody\0secret") == INVALID


def test_every_verifier_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the time does not tell which of them fits."""
    hashed: list[bytes] = []
    monkeypatch.setattr(plain, "matches", lambda digest, password, credential: bool(hashed.append(password)) or True)
    log_in(b"\0both\0secret")
    log_in(b"\0bob\0builder")
    assert hashed == [b"secret", b"secret", b"builder"]


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (b"", "expected 3 tokens"),
        (b"\0alice", "expected 3 tokens"),
        (b"\0alice\0secret\0more", "expected 3 tokens"),
        (b"\0\0secret", "username not specified"),
        (b"\0alice\0", "password not specified"),
        (b"root\0alice\0secret", "different from username"),
    ],
)
def test_refused_messages(data: bytes, told: str) -> None:
    outcome = log_in(data)
    assert isinstance(outcome, Failed)
    assert told in outcome.told


@given(st.binary(max_size=64))
def test_any_bytes_fail_without_an_exception(data: bytes) -> None:
    assert isinstance(log_in(data), Failed)


def test_no_password_is_shown() -> None:
    assert "builder" not in repr(USERS["bob"])
