"""SASL conversations against the RFCs' own examples, and brokers that lie."""

import base64
import hashlib
import hmac

import pytest

from moldau.security.sasl_client import AuthenticationFailed, Conversation, Sasl, conversation, scram

# RFC 7677, section 3.
NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
FINAL = b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
PROOF = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def rfc_7677() -> Conversation:
    return scram(Sasl("SCRAM-SHA-256", "user", "pencil"), "sha256", NONCE)


def test_scram_is_the_rfcs() -> None:
    talk = rfc_7677()
    assert next(talk) == b"n,,n=user,r=" + NONCE.encode()
    assert talk.send(FIRST) == FINAL
    with pytest.raises(StopIteration):
        talk.send(PROOF)


@pytest.mark.parametrize(
    ("first", "final", "why"),
    [
        (FIRST.replace(b"r=rOpr", b"r=Xxxx"), b"", "another nonce"),
        (b"r=" + NONCE.encode() + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", b"", "another nonce"),
        (FIRST.replace(b"i=4096", b"i=1"), b"", "1 iterations"),
        (FIRST.replace(b"i=4096", b"i=99999999999"), b"", "iterations"),
        (FIRST, b"v=AAAA", "did not prove"),
        (FIRST, b"", "did not prove"),
        (FIRST, b"e=invalid-proof", "invalid-proof"),
    ],
)
def test_a_broker_that_lies_is_found_out(first: bytes, final: bytes, why: str) -> None:
    def listen() -> None:
        talk = rfc_7677()
        next(talk)
        talk.send(first)
        talk.send(final)

    with pytest.raises(AuthenticationFailed, match=why):
        listen()


def test_sha_512_and_names_with_commas() -> None:
    talk = conversation(Sasl("SCRAM-SHA-512", "a=b,c", "secret"), NONCE)
    first = next(talk).decode().removeprefix("n,,")
    assert first.startswith("n=a=3Db=2Cc,r=")
    nonce = first.partition(",r=")[2] + "more"
    challenge = f"r={nonce},s={base64.b64encode(b'salt').decode()},i=4096"
    last = talk.send(challenge.encode()).decode()
    bare, _, proof = last.partition(",p=")
    salted = hashlib.pbkdf2_hmac("sha512", b"secret", b"salt", 4096)
    key = hmac.digest(salted, b"Client Key", "sha512")
    whole = f"{first},{challenge},{bare}".encode()
    signature = hmac.digest(hashlib.sha512(key).digest(), whole, "sha512")
    assert base64.b64decode(proof) == bytes(left ^ right for left, right in zip(key, signature, strict=True))


def test_plain_and_tokens() -> None:
    assert next(conversation(Sasl("PLAIN", "joe", "pass"), "")) == b"\0joe\0pass"
    talk = conversation(Sasl("OAUTHBEARER", token=lambda: "fresh"), "")
    assert next(talk) == b"n,,\x01auth=Bearer fresh\x01\x01"
    assert talk.send(b'{"status":"invalid_token"}') == b"\x01"
    with pytest.raises(AuthenticationFailed, match="invalid_token"):
        talk.send(b"")


def test_an_unknown_mechanism_is_named_with_those_that_are_known() -> None:
    with pytest.raises(AuthenticationFailed, match=r"'GSSAPI' is none of PLAIN, SCRAM-SHA-256"):
        conversation(Sasl("GSSAPI"), "")


def test_secrets_are_not_shown() -> None:
    assert "hidden" not in repr(Sasl("PLAIN", "joe", "hidden", "hidden"))
