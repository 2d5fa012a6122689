"""SCRAM on the server's side: the RFC's own example, our client's side, credentials as texts, and hostile messages."""

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.security.sasl import Authenticated, Challenge, Failed, NeedsWork, Outcome
from moldau.security.sasl_client import AuthenticationFailed, Sasl, conversation
from moldau.security.scram import (
    SCRAM,
    Credential,
    ScramExchange,
    ScramUsers,
    TokenLogin,
    matches,
    new_credential,
    read_credential,
    read_name,
)

SHA_256 = SCRAM["SCRAM-SHA-256"]
# RFC 7677, section 3.
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT, SERVER = "rOprNGfwEbeRWgbNEkqO", "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
FIRST = b"n,,n=user,r=" + CLIENT.encode()
CHALLENGE = f"r={CLIENT}{SERVER},s={base64.b64encode(SALT).decode()},i=4096".encode()
FINAL = f"c=biws,r={CLIENT}{SERVER},p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=".encode()
PENCIL = new_credential("sha256", "pencil", SALT, 4096)
DECOY = Credential(b"decoy", bytes(32), bytes(32), 4096)
OTHERS = Failed("invalid credentials")

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)


def users(tokens: dict[str, TokenLogin] | None = None, **known: Credential) -> ScramUsers:
    return ScramUsers(known.get, (tokens or {}).get, lambda name: DECOY)


def rfc() -> ScramExchange:
    return ScramExchange(SHA_256, users(user=PENCIL), SERVER)


def done(outcome: Outcome) -> Outcome:
    return outcome.run() if isinstance(outcome, NeedsWork) else outcome


def log_in(exchange: ScramExchange, sasl: Sasl, nonce: str = "abc") -> Outcome:
    """The outcome of a login with our own client, whose checks of the server count too."""
    talk = conversation(sasl, nonce)
    saying = next(talk)
    while isinstance(outcome := done(exchange.step(saying)), Challenge):
        saying = talk.send(outcome.data)
    if isinstance(outcome, Authenticated):
        with pytest.raises(StopIteration):
            talk.send(outcome.data)
    return outcome


def test_the_rfcs_example() -> None:
    exchange = rfc()
    assert exchange.step(FIRST) == Challenge(CHALLENGE)
    assert exchange.step(FINAL) == Authenticated("user", b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@pytest.mark.parametrize("name", SCRAM)
@given(user=texts, password=texts)
def test_any_user_and_password(name: str, user: str, password: str) -> None:
    digest = SCRAM[name].digest
    credential = new_credential(digest, password, b"salt", 4096)
    known = ScramUsers({user: credential}.get, {}.get, lambda name: DECOY)
    outcome = log_in(ScramExchange(SCRAM[name], known, "xyz"), Sasl(name, user, password))
    assert isinstance(outcome, Authenticated)
    assert (outcome.user, outcome.by_token, outcome.expires_ms) == (user, False, None)
    refused = log_in(ScramExchange(SCRAM[name], known, "xyz"), Sasl(name, user, password + "x"))
    assert refused == OTHERS
    assert isinstance(refused, Failed)
    assert refused.user == user


def test_an_unknown_user_gets_a_challenge_and_the_same_failure() -> None:
    exchange = ScramExchange(SHA_256, users(user=PENCIL), SERVER)
    outcome = exchange.step(b"n,,n=nobody,r=" + CLIENT.encode())
    assert isinstance(outcome, Challenge)
    assert outcome.data.startswith(f"r={CLIENT}{SERVER},s=".encode())
    assert exchange.step(FINAL) == OTHERS


def test_no_proof_fits_a_decoy() -> None:
    """Not even that of the keys that a decoy has."""
    exchange = ScramExchange(SHA_256, ScramUsers({}.get, {}.get, lambda name: PENCIL), SERVER)
    exchange.step(FIRST)
    assert exchange.step(FINAL) == OTHERS


def test_a_weak_stored_credential_is_not_used() -> None:
    weak = new_credential("sha256", "pencil", SALT, 1)
    assert log_in(ScramExchange(SHA_256, users(user=weak), "x"), Sasl(SHA_256.name, "user", "pencil")) == OTHERS


def test_a_delegation_token_logs_its_owner_in() -> None:
    tokens = {"id-1": TokenLogin("alice", b"c2VjcmV0", 123_000)}
    exchange = ScramExchange(SHA_256, users(tokens), "xyz")
    outcome = log_in(exchange, Sasl(SHA_256.name, "id-1", "c2VjcmV0", by_token=True))
    assert isinstance(outcome, Authenticated)
    assert (outcome.user, outcome.by_token, outcome.expires_ms) == ("alice", True, 123_000)
    unknown = ScramExchange(SHA_256, users(tokens), "xyz")
    assert log_in(unknown, Sasl(SHA_256.name, "id-2", "c2VjcmV0", by_token=True)) == OTHERS
    as_user = ScramExchange(SHA_256, users(tokens), "xyz")
    assert log_in(as_user, Sasl(SHA_256.name, "id-1", "c2VjcmV0")) == OTHERS


def test_the_empty_password_of_an_unknown_token_logs_nobody_in() -> None:
    assert log_in(ScramExchange(SHA_256, users(), "xyz"), Sasl(SHA_256.name, "id", "", by_token=True)) == OTHERS


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n",
        b"n,,",
        b"n,,n=,r=abc",
        b"n,,n=user",
        b"n,,n=user,r=",
        b"n,,n=user,r=a c",
        b"n,,m=what,n=user,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=us=2Der,r=abc",
        b"p=tls-unique,,n=user,r=abc",
        b"x,,n=user,r=abc",
        b"\xff\xfe",
    ],
)
def test_malformed_first_messages(first: bytes) -> None:
    assert isinstance(rfc().step(first), Failed)


@pytest.mark.parametrize(
    "final",
    [
        b"",
        FINAL.replace(b"c=biws", b"c=eSws"),
        FINAL.replace(b"c=biws", b"c="),
        FINAL.replace(SERVER.encode(), b""),
        FINAL.replace(b",p=", b",q="),
        FINAL[:-4],
        FINAL + b"!",
        FINAL.replace(b"p=d", b"p=e"),
        FINAL.replace(b",p=", b",x=1,p="),
        b"\xff" + FINAL,
        FIRST,
    ],
)
def test_wrong_final_messages(final: bytes) -> None:
    exchange = rfc()
    exchange.step(FIRST)
    assert isinstance(exchange.step(final), Failed)
    assert isinstance(exchange.step(FINAL), Failed), "an exchange that failed is over"


def test_a_repeated_nonce_is_refused_with_the_cause() -> None:
    exchange = rfc()
    exchange.step(FIRST)
    outcome = exchange.step(FINAL.replace(b",r=", f",r={CLIENT}".encode()))
    assert isinstance(outcome, Failed)
    assert "librdkafka before 2.6.1" in outcome.told


def test_another_identity_is_refused() -> None:
    outcome = rfc().step(b"n,a=root,n=user,r=abc")
    assert isinstance(outcome, Failed)
    assert "different from username" in outcome.told
    assert isinstance(rfc().step(b"n,a=user,n=user,r=abc"), Challenge)


@given(st.lists(st.binary(max_size=80), max_size=3))
def test_any_bytes_fail_without_an_exception(messages: list[bytes]) -> None:
    exchange = rfc()
    for message in messages:
        assert not isinstance(done(exchange.step(message)), Authenticated)


@given(
    salt=st.binary(min_size=1), stored=st.binary(min_size=1), server=st.binary(min_size=1), count=st.integers(1, 10**6)
)
def test_a_credential_is_read_as_it_was_written(salt: bytes, stored: bytes, server: bytes, count: int) -> None:
    credential = Credential(salt, stored, server, count)
    assert read_credential(str(credential)) == credential
    assert base64.b64encode(stored).decode() not in repr(credential)


@pytest.mark.parametrize("text", ["", "salt=,stored_key=,server_key=,iterations=1", "salt=!!", "iterations=4096"])
def test_a_damaged_credential_is_none(text: str) -> None:
    assert read_credential(text) is None


def test_a_password_against_a_credential() -> None:
    assert matches("sha256", b"pencil", PENCIL)
    assert not matches("sha256", b"pen", PENCIL)
    assert not matches("sha512", b"pencil", PENCIL)


def test_names() -> None:
    assert read_name("a=2Cb=3Dc") == "a,b=c"
    assert read_name("a=") is read_name("=2") is read_name("=41") is None


def test_our_client_refuses_a_server_without_the_password() -> None:
    talk = conversation(Sasl(SHA_256.name, "user", "other"), CLIENT)
    next(talk)
    talk.send(CHALLENGE)
    with pytest.raises(AuthenticationFailed, match="did not prove"):
        talk.send(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
