"""Delegation tokens: their requests, logins with them, and Java's tools."""

import base64
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from kafka.protocol.metadata import MetadataRequest

from moldau.client.direct.connection import Connection
from moldau.client.direct.security import Security
from moldau.security.sasl_client import Sasl
from moldau.testing import Broker
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
from support.clients.raw import RawClient
from support.clients.sasl import PLAIN_USERS, log_in, sasl_broker
from support.kafka import jvm

java = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")

DISABLED, NOT_FOUND, OWNER_MISMATCH, NOT_ALLOWED, UNAUTHORIZED, EXPIRED, PRINCIPAL_TYPE = 61, 62, 63, 64, 65, 66, 67
Token = CreateDelegationTokenResponse


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with sasl_broker(**{"delegation.token.secret.key": "of-the-cluster"}) as started:
        yield started


def connect(broker: Broker, sasl: Sasl | None) -> Connection:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return Connection(host, int(port), Security(sasl=sasl), client_id="test", timeout_s=20)


def logged_in(broker: Broker, user: str) -> Connection:
    return connect(broker, Sasl("PLAIN", user, PLAIN_USERS[user]))


@pytest.fixture
def alice(broker: Broker) -> Iterator[Connection]:
    with closing(logged_in(broker, "alice")) as client:
        yield client


def create(
    client: Connection, *renewers: str, life_ms: int = -1, owner: str | None = None, kind: str = "User"
) -> Token:
    made = CreateDelegationTokenRequest(
        owner_principal_type="User" if owner else None,
        owner_principal_name=owner,
        renewers=tuple(CreatableRenewer(principal_type=kind, principal_name=each) for each in renewers),
        max_lifetime_ms=life_ms,
    )
    return client.ask(made, CreateDelegationTokenResponse)


def renew(client: Connection, hmac: bytes, period_ms: int = 10_000) -> RenewDelegationTokenResponse:
    return client.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), RenewDelegationTokenResponse)


def expire(client: Connection, hmac: bytes) -> ExpireDelegationTokenResponse:
    asked = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1)
    return client.ask(asked, ExpireDelegationTokenResponse)


def by_token(token: Token, mechanism: str = "SCRAM-SHA-512") -> Sasl:
    return Sasl(mechanism, token.token_id, base64.b64encode(token.hmac).decode(), by_token=True)


def described(client: Connection) -> DescribeDelegationTokenResponse:
    return client.ask(DescribeDelegationTokenRequest(owners=None), DescribeDelegationTokenResponse)


def describe(client: Connection) -> list[str]:
    found = described(client)
    assert found.error_code == 0
    return [token.token_id for token in found.tokens]


def error_of(broker: Broker, token: Token) -> int:
    with RawClient(broker.bootstrap_servers) as client:
        return log_in(client, by_token(token)).error


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_logs_its_owner_in(broker: Broker, alice: Connection, mechanism: str) -> None:
    token = create(alice)
    assert token.error_code == 0
    assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice")
    with RawClient(broker.bootstrap_servers) as client:
        found = log_in(client, by_token(token, mechanism))
        assert found.error == 0
        assert 0 < found.lifetime_ms <= 86_400_000, "the session ends with the token"
        assert client.ask(MetadataRequest(topics=None), 1).brokers
    with closing(connect(broker, by_token(token, mechanism))) as owner:
        assert create(owner).error_code == NOT_ALLOWED, "a token is not for getting another"


def test_those_concerned_see_renew_and_expire_a_token(broker: Broker, alice: Connection) -> None:
    token = create(alice, "admin", life_ms=60_000)
    assert token.expiry_timestamp_ms == token.max_timestamp_ms == token.issue_timestamp_ms + 60_000
    with closing(logged_in(broker, "admin")) as admin:
        assert token.token_id in describe(admin)
        renewed = renew(admin, token.hmac)
        assert renewed.error_code == 0
        assert renewed.expiry_timestamp_ms <= token.max_timestamp_ms
        other = create(alice)
        assert other.token_id not in describe(admin)
        refused = renew(admin, other.hmac)
        assert refused.error_code == OWNER_MISMATCH
    expired = expire(alice, token.hmac)
    assert (expired.error_code, expired.expiry_timestamp_ms) == (0, -1)
    assert token.token_id not in describe(alice)
    assert error_of(broker, token) == 58
    again = expire(alice, token.hmac)
    assert again.error_code == NOT_FOUND


def test_an_expired_token_is_none(broker: Broker, alice: Connection) -> None:
    token = create(alice, life_ms=300)
    time.sleep(0.5)
    assert token.token_id not in describe(alice)
    renewed = renew(alice, token.hmac)
    assert renewed.error_code == EXPIRED
    assert error_of(broker, token) == 58


def test_no_id_looks_like_an_option(alice: Connection) -> None:
    """One of 64 random ids begins with a dash."""
    assert not [token.token_id for token in (create(alice) for _ in range(300)) if token.token_id.startswith("-")]


def test_refusals(alice: Connection) -> None:
    assert create(alice, owner="admin").error_code == UNAUTHORIZED
    assert create(alice, "x", kind="Group").error_code == PRINCIPAL_TYPE
    assert renew(alice, b"x").error_code == NOT_FOUND


def test_tokens_survive_a_restart(tmp_path: Path) -> None:
    broker = sasl_broker(directory=tmp_path, **{"delegation.token.secret.key": "of-the-cluster"})
    with broker.start(), closing(logged_in(broker, "alice")) as client:
        token = create(client)
    with broker.start():
        assert error_of(broker, token) == 0


def test_without_a_secret_key_there_are_no_tokens() -> None:
    with sasl_broker() as broker, closing(logged_in(broker, "alice")) as client:
        assert create(client).error_code == DISABLED
        assert described(client).error_code == DISABLED


def test_an_anonymous_client_gets_none() -> None:
    with Broker(**{"delegation.token.secret.key": "x"}) as broker, closing(connect(broker, None)) as client:
        assert create(client).error_code == NOT_ALLOWED
        assert described(client).error_code == NOT_ALLOWED


def config(path: Path, mechanism: str, module: str, user: str, password: str, more: str = "") -> str:
    login = f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}"{more};'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n")
    return str(path)


@java
def test_javas_tools(broker: Broker, tmp_path: Path) -> None:
    plain = config(tmp_path / "plain", "PLAIN", "plain.PlainLoginModule", "alice", PLAIN_USERS["alice"])
    at = ("--bootstrap-server", broker.bootstrap_servers, "--command-config")
    tool = "org.apache.kafka.tools.DelegationTokenCommand"
    made = jvm.run(tool, *at, plain, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:admin")
    assert made.returncode == 0, made.stdout + made.stderr
    row = next(line.split() for line in made.stdout.splitlines() if "User:alice" in line)
    token_id, hmac = row[0], row[1]
    token = config(tmp_path / "token", "SCRAM-SHA-256", "scram.ScramLoginModule", token_id, hmac, ' tokenauth="true"')
    topics = jvm.run("org.apache.kafka.tools.TopicCommand", *at, token, "--create", "--topic", "by-token")
    assert topics.returncode == 0, topics.stdout + topics.stderr
    assert token_id in jvm.run(tool, *at, plain, "--describe", "--owner-principal", "User:alice").stdout
    ended = jvm.run(tool, *at, plain, "--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert token_id not in jvm.run(tool, *at, plain, "--describe", "--owner-principal", "User:alice").stdout
