"""Logins of Go's and Java's clients with every mechanism, and Java's tool for users."""

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from moldau.client.admin.cluster import open_cluster
from moldau.client.admin.target import Target
from moldau.client.admin.tokens import create_token
from moldau.testing import Broker
from support.clients.go import WITHOUT_GO
from support.clients.sasl import (
    PLAIN_USERS,
    SCRAM_USERS,
    SCRAMS,
    add_scram_users,
    client_settings,
    sasl_broker,
)
from support.kafka import jvm

java = pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
KEY = RSAKey.generate_key(2048, {"kid": "one"})
MODULES = {"PLAIN": "plain.PlainLoginModule", **dict.fromkeys(SCRAMS, "scram.ScramLoginModule")}
LOGINS = [("PLAIN", "alice", PLAIN_USERS["alice"]), *((each, *next(iter(SCRAM_USERS.items()))) for each in SCRAMS)]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("keys") / "jwks.json"
    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    settings = {
        "sasl.enabled.mechanisms": ",".join((*MODULES, "OAUTHBEARER")),
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "delegation.token.secret.key": "of-the-cluster",
    }
    with sasl_broker(**settings) as started:
        add_scram_users(started.bootstrap_servers)
        yield started


def token(**more: object) -> str:
    now = int(time.time())
    return jwt.encode({"alg": "RS256", "kid": "one"}, {"sub": "olga", "iat": now, "exp": now + 600} | more, KEY)


# ── Go ──


def go(program: Path, broker: Broker, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(program), "login", broker.bootstrap_servers, *words],
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )


@WITHOUT_GO
@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_go(go_program: Path, broker: Broker, mechanism: str, user: str, password: str) -> None:
    done = go(go_program, broker, mechanism, user, password)
    assert done.stdout.strip() == "1", done.stderr
    refused = go(go_program, broker, mechanism, user, "wrong")
    assert refused.returncode == 1
    assert "SASL_AUTHENTICATION_FAILED" in refused.stderr


@WITHOUT_GO
def test_go_with_tokens(go_program: Path, broker: Broker) -> None:
    assert go(go_program, broker, "OAUTHBEARER", "", token()).stdout.strip() == "1"
    assert go(go_program, broker, "OAUTHBEARER", "", token(exp=1)).returncode == 1
    settings = client_settings(broker.bootstrap_servers, "PLAIN", "alice", PLAIN_USERS["alice"])
    target = Target(broker.bootstrap_servers, {name: str(value) for name, value in settings.items() if "." in name})
    with open_cluster(target) as cluster:
        made = create_token(cluster, (), None)
    assert base64.b64decode(made.hmac)
    assert go(go_program, broker, "SCRAM-SHA-512", made.id, made.hmac, "token").stdout.strip() == "1"


# ── Java ──


def config(path: Path, mechanism: str, user: str, password: str) -> str:
    login = f'org.apache.kafka.common.security.{MODULES[mechanism]} required username="{user}" password="{password}";'
    path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n")
    return str(path)


def topics(broker: Broker, settings: str) -> subprocess.CompletedProcess[str]:
    at = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", settings)
    return jvm.run("org.apache.kafka.tools.TopicCommand", *at, "--list")


@java
@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_java(broker: Broker, tmp_path: Path, mechanism: str, user: str, password: str) -> None:
    done = topics(broker, config(tmp_path / "right", mechanism, user, password))
    assert done.returncode == 0, done.stdout + done.stderr
    refused = topics(broker, config(tmp_path / "wrong", mechanism, user, "wrong"))
    assert refused.returncode == 1
    assert "Authentication failed" in refused.stdout + refused.stderr


@java
def test_javas_tool_for_users(broker: Broker, tmp_path: Path) -> None:
    admin = config(tmp_path / "admin", "PLAIN", "admin", PLAIN_USERS["admin"])
    at = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", admin)
    user = ("--entity-type", "users", "--entity-name", "jan")
    done = jvm.run("kafka.admin.ConfigCommand", *at, *user, "--alter", "--add-config", "SCRAM-SHA-256=[password=jans]")
    assert done.returncode == 0, done.stdout + done.stderr
    assert topics(broker, config(tmp_path / "jan", "SCRAM-SHA-256", "jan", "jans")).returncode == 0
