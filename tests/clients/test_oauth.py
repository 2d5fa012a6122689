"""OAUTHBEARER: tokens of our own provider, verified with its keys in a file; unsigned tokens; sessions of tokens."""

import base64
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OctKey, RSAKey
from kafka.protocol.metadata import MetadataRequest

from moldau.broker.security.jwks import UNKNOWN_KEY_PAUSE_S, TokenVerifier
from moldau.broker.security.sasl_settings import OAuthSettings
from moldau.security.oauth import ClaimRules
from moldau.security.sasl_client import AuthenticationFailed, Sasl
from moldau.testing import Broker
from support.clients.raw import RawClient
from support.clients.sasl import log_in, sasl_broker

RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
STRANGER = RSAKey.generate_key(2048, {"kid": "rsa"})
LATER = ECKey.generate_key("P-256", {"kid": "later"})
ISSUER = "https://issuer.example"


def claims(**more: object) -> dict[str, Any]:
    now = int(time.time())
    return {"sub": "alice", "iss": ISSUER, "aud": ["kafka"], "iat": now, "exp": now + 600, "scope": "read"} | more


def signed(key: Any = RSA, algorithm: str = "RS256", **more: object) -> str:
    header = {"alg": algorithm, **({"kid": key.kid} if key.kid else {})}
    return jwt.encode(header, claims(**more), key, algorithms=[algorithm])


def unsigned(**more: object) -> str:
    parts = (json.dumps(part).encode() for part in ({"alg": "none"}, claims(**more)))
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def write_keys(path: Path, *keys: Any) -> str:
    path.write_text(json.dumps(KeySet(list(keys)).as_dict(private=False)))
    return path.as_uri()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER,PLAIN",
        "sasl.oauthbearer.jwks.endpoint.url": write_keys(tmp_path_factory.mktemp("keys") / "jwks.json", RSA, EC),
        "sasl.oauthbearer.expected.issuer": ISSUER,
        "sasl.oauthbearer.expected.audience": "other,kafka",
    }
    with sasl_broker(**settings) as started:
        yield started


def log_in_with(broker: Broker, token: str) -> tuple[int, str | None, int]:
    with RawClient(broker.bootstrap_servers) as client:
        try:
            found = log_in(client, Sasl("OAUTHBEARER", token=token))
        except AuthenticationFailed as failed:  # the broker's JSON, and then no more
            return 58, str(failed), 0
        if not found.error:
            assert client.ask(MetadataRequest(topics=None), 1).brokers
        return found.error, found.message, found.lifetime_ms


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (EC, "ES256")], ids=["RSA", "EC"])
def test_tokens_of_both_kinds_of_keys(broker: Broker, key: Any, algorithm: str) -> None:
    assert log_in_with(broker, signed(key, algorithm))[0] == 0


def test_the_session_ends_with_the_token(broker: Broker) -> None:
    error, _, lifetime_ms = log_in_with(broker, signed(exp=int(time.time()) + 100))
    assert not error
    assert 90_000 < lifetime_ms <= 100_000


@pytest.mark.parametrize(
    "token",
    [
        pytest.param(lambda: signed(STRANGER), id="signed by a stranger"),
        pytest.param(lambda: signed(LATER, "ES256"), id="an unknown key"),
        pytest.param(unsigned, id="not signed"),
        pytest.param(lambda: signed(OctKey.import_key("x" * 32), "HS256"), id="a shared secret"),
        pytest.param(lambda: signed(exp=1), id="expired"),
        pytest.param(lambda: signed(iss="https://other"), id="another issuer"),
        pytest.param(lambda: signed(aud="another"), id="another audience"),
        pytest.param(lambda: signed(sub=""), id="no subject"),
        pytest.param(lambda: signed()[:-6] + "AAAAAA", id="a changed signature"),
        pytest.param(lambda: "a.b.c", id="no token"),
        pytest.param(lambda: "a", id="a letter"),
        pytest.param(lambda: "." * 50_000, id="dots"),
    ],
)
def test_refused_tokens(broker: Broker, token: Any) -> None:
    refused: str = token()
    assert log_in_with(broker, refused)[0] == 58
    assert len(refused) < 40 or refused[:40] not in broker.log_text()


def test_unsigned_tokens_need_a_setting_with_a_frightening_name() -> None:
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.unsafe.accept.unsigned.tokens.from.anyone": "true",
    }
    with sasl_broker(**settings) as broker:
        assert log_in_with(broker, unsigned())[0] == 0
        assert log_in_with(broker, unsigned(exp=1))[0] == 58
        assert "sasl.oauthbearer.unsafe.accept.unsigned.tokens.from.anyone" in broker.log_text()


RULES = ClaimRules(None, (), "scope", "sub", 30)


def test_new_keys_are_found_when_a_token_names_one(tmp_path: Path) -> None:
    now = 1000.0
    url = write_keys(tmp_path / "jwks.json", RSA)
    verify = TokenVerifier(OAuthSettings(url, 3_600_000, 100, 10_000, RULES), lambda: now)
    assert not isinstance(verify(signed()), str)
    write_keys(tmp_path / "jwks.json", RSA, LATER)
    assert isinstance(verify(signed(LATER, "ES256")), str), "not at once: anyone can make up names of keys"
    now += UNKNOWN_KEY_PAUSE_S + 1
    assert not isinstance(verify(signed(LATER, "ES256")), str)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}'])
def test_a_provider_without_usable_keys(tmp_path: Path, text: str) -> None:
    now = 1000.0
    path = tmp_path / "jwks.json"
    path.write_text(text)
    verify = TokenVerifier(OAuthSettings(path.as_uri(), 60_000, 100, 10_000, RULES), lambda: now)
    assert verify(signed()) == "the OAuth provider's keys are not available"
    write_keys(path, RSA)
    assert isinstance(verify(signed()), str), "after a failure there is a pause"
    now += 1
    assert not isinstance(verify(signed()), str)
    path.unlink()
    now += 100
    assert not isinstance(verify(signed()), str), "the last known keys are used when the provider is gone"
