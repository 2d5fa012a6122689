"""Go's login with a delegation token, and Java's tool for users."""

import base64
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.client.admin.cluster import open_cluster
from moldau.client.admin.target import Target
from moldau.client.admin.tokens import create_token
from moldau.testing import Broker
from support.clients.go import WITHOUT_GO
from support.clients.sasl import PLAIN_USERS, client_settings, jaas, sasl_broker
from support.kafka import jvm


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with sasl_broker(**{"delegation.token.secret.key": "of-the-cluster"}) as started:
        yield started


@WITHOUT_GO
def test_go_with_a_delegation_token(go_program: Path, broker: Broker) -> None:
    settings = client_settings(broker.bootstrap_servers, "PLAIN", "alice", PLAIN_USERS["alice"])
    target = Target(broker.bootstrap_servers, {name: str(value) for name, value in settings.items() if "." in name})
    with open_cluster(target) as cluster:
        made = create_token(cluster, (), None)
    assert base64.b64decode(made.hmac)
    words = ("login", broker.bootstrap_servers, "SCRAM-SHA-512", made.id, made.hmac, "token")
    done = subprocess.run([str(go_program), *words], capture_output=True, text=True, timeout=90, check=False)
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
def test_javas_tool_for_users(broker: Broker, tmp_path: Path) -> None:
    def config(mechanism: str, module: str, user: str, password: str) -> tuple[str, ...]:
        login = jaas({"username": user, "password": password}, module)
        path = tmp_path / user
        path.write_text(f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\nsasl.jaas.config={login}\n")
        return "--bootstrap-server", broker.bootstrap_servers, "--command-config", str(path)

    admin = config("PLAIN", "plain.PlainLoginModule", "admin", PLAIN_USERS["admin"])
    user = ("--entity-type", "users", "--entity-name", "jan")
    change = ("--alter", "--add-config", "SCRAM-SHA-256=[password=jans]")
    done = jvm.run("kafka.admin.ConfigCommand", *admin, *user, *change)
    assert done.returncode == 0, done.stdout + done.stderr
    jan = config("SCRAM-SHA-256", "scram.ScramLoginModule", "jan", "jans")
    listed = jvm.run("org.apache.kafka.tools.TopicCommand", *jan, "--list")
    assert listed.returncode == 0, listed.stdout + listed.stderr
