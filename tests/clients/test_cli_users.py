"""`moldau user` and `moldau token` on a broker with SASL, users made before the first start, profiles."""

import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.security.sasl_client import Sasl
from moldau.testing import Broker
from support.clients.cli import Run, fail, runner, succeed
from support.clients.raw import RawClient
from support.clients.sasl import PLAIN_USERS, log_in, sasl_broker
from support.security.named_clients import AUTHORIZER

AUTHORIZED = {"authorizer.class.name": AUTHORIZER}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with sasl_broker(**{"delegation.token.secret.key": "of-the-cluster"}) as started:
        yield started


@pytest.fixture
def properties(tmp_path: Path) -> Path:
    """Of a Java client, with a JAAS string."""
    path = tmp_path / "client.properties"
    login = f'username="admin" password="{PLAIN_USERS["admin"]}"'
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={module} required {login};\n"
    )
    return path


@pytest.fixture
def moldau(broker: Broker, properties: Path) -> Run:
    run = runner(broker.bootstrap_servers)
    return lambda *arguments, stdin="": run(*arguments, "-X", f"@{properties}", stdin=stdin)


def enters(broker: Broker, mechanism: str, user: str, password: str) -> bool:
    with RawClient(broker.bootstrap_servers) as client:
        return log_in(client, Sasl(mechanism, user, password)).error == 0


def test_the_life_of_a_user(broker: Broker, moldau: Run, tmp_path: Path) -> None:
    assert "Created user carol" in succeed(moldau("user", "create", "carol", stdin="first\n"))
    assert enters(broker, "SCRAM-SHA-512", "carol", "first")
    assert enters(broker, "PLAIN", "carol", "first")
    fail(moldau("user", "create", "carol", stdin="x\n"), 1, "exists", "user alter carol")
    secret = tmp_path / "secret"
    secret.write_text("second\n")
    succeed(moldau("user", "alter", "carol", "--password-file", str(secret), "--mechanism", "SCRAM-SHA-256"))
    assert enters(broker, "SCRAM-SHA-256", "carol", "second")
    assert not enters(broker, "SCRAM-SHA-256", "carol", "first")
    assert enters(broker, "SCRAM-SHA-512", "carol", "first")
    shown = json.loads(succeed(moldau("user", "describe", "carol", "-o", "json")))
    assert shown == [{"user": "carol", "mechanisms": {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 8192}}]
    assert "carol" in succeed(moldau("user", "list"))
    assert "Would delete" in succeed(moldau("user", "delete", "carol", "--dry-run"))
    fail(moldau("user", "delete", "carol"), 2, "--yes")
    succeed(moldau("user", "delete", "carol", "--yes"))
    assert not enters(broker, "SCRAM-SHA-512", "carol", "first")
    fail(moldau("user", "describe", "carol"), 1, "no user 'carol'")


@pytest.mark.parametrize(
    ("arguments", "stdin", "words"),
    [
        (("dave",), "\n", "empty"),
        (("dave", "--iterations", "1"), "x\n", "between 4096 and 16384"),
        (("dave", "--mechanism", "MD5"), "x\n", "SCRAM-SHA-256"),
        (("dave", "--password-file", "/none"), "", "cannot read"),
    ],
)
def test_wrong_users(moldau: Run, arguments: tuple[str, ...], stdin: str, words: str) -> None:
    fail(moldau("user", "create", *arguments, stdin=stdin), 2, words)


def test_users_that_are_missing_or_empty(moldau: Run) -> None:
    fail(moldau("user", "alter", "nobody", stdin="x\n"), 1, "no user 'nobody'", "moldau user list -X @")
    fail(moldau("user", "create", "dave"), 2, "--password-file")
    fail(moldau("token", "renew", "none"), 1, "no delegation token 'none'", "moldau token list")
    fail(moldau("token", "create", "--max-lifetime", "0s"), 2, "is no time at all")


@pytest.mark.parametrize("command", [("topic", "list"), ("user", "list"), ("consume", "t"), ("org", "list")])
@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("sasl.password=wrong", ("nvalid", "Check sasl.mechanism, sasl.username and sasl.password")),
        ("security.protocol=sasl_ssl", ("Leave out -X security.protocol=sasl_ssl",)),
        ("security.protocol=plaintext", ("such as -X security.protocol=sasl_plaintext",)),
    ],
)
def test_a_login_that_fails_says_why(
    broker: Broker, properties: Path, command: tuple[str, ...], wrong: str, words: tuple[str, ...]
) -> None:
    """With librdkafka as with our own client, before librdkafka waits for a broker that lets it in."""
    run = runner(broker.bootstrap_servers)
    fail(run(*command, "-X", f"@{properties}", "-X", wrong), 1, *words)


def test_doctor_tells_of_a_login_that_fails(broker: Broker, properties: Path) -> None:
    run = runner(broker.bootstrap_servers)
    done = run("doctor", "-X", f"@{properties}", "-X", "sasl.password=wrong", "-o", "json")
    assert done.returncode == 1, done.stderr
    findings = {each["what"]: each for each in json.loads(done.stdout)}
    assert findings["login"]["state"] == "wrong"
    assert "sasl.password" in findings["login"]["advice"]


def as_user(broker: Broker, user: str) -> Run:
    login = {"sasl.username": user, "sasl.password": PLAIN_USERS[user], "sasl.mechanism": "PLAIN"}
    options = {"security.protocol": "SASL_PLAINTEXT", **login}.items()
    given = [word for name, value in options for word in ("-X", f"{name}={value}")]
    run = runner(broker.bootstrap_servers)
    return lambda *arguments: run(*arguments, *given)


def test_a_user_without_rights_is_told_so(tmp_path: Path) -> None:
    """librdkafka ends the process when it is refused the list of users."""
    secret = {"delegation.token.secret.key": "of-the-cluster"}
    with sasl_broker(tmp_path / "data", **{"super.users": "User:admin", **AUTHORIZED, **secret}) as broker:
        alice, admin = as_user(broker, "alice"), as_user(broker, "admin")
        fail(alice("user", "list"), 1, "CLUSTER_AUTHORIZATION_FAILED", "super user")
        fail(alice("token", "create", "--owner", "User:admin"), 1, "DELEGATION_TOKEN_AUTHORIZATION_FAILED")
        fail(alice("token", "create", "--owner", "admin"), 2, "User:name")
        made = json.loads(succeed(admin("token", "create", "--owner", "User:alice", "-o", "json")))
        assert made["owner"] == "User:alice"
        assert made["id"] in succeed(alice("token", "list"))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("-b", ""), "no broker address given"),
        (("-X", "ssl.ca.location=none.pem"), "ssl.ca.location: there is no file none.pem"),
        (("-X", "@none.properties"), "cannot read none.properties"),
    ],
)
def test_options_that_lead_nowhere(arguments: tuple[str, ...], words: str) -> None:
    fail(runner("localhost:1")("user", "list", *arguments), 2, words)


def test_the_life_of_a_token(broker: Broker, moldau: Run) -> None:
    made = json.loads(
        succeed(moldau("token", "create", "--renewer", "User:alice", "--max-lifetime", "1h", "-o", "json"))
    )
    with RawClient(broker.bootstrap_servers) as client:
        assert log_in(client, Sasl("SCRAM-SHA-256", made["id"], made["hmac"], by_token=True)).error == 0
    listed = succeed(moldau("token", "list"))
    assert made["id"] in listed
    assert made["hmac"] not in listed
    assert "expires at" in succeed(moldau("token", "renew", made["id"], "--period", "10m"))
    assert "Would delete" in succeed(moldau("token", "expire", made["id"], "--dry-run"))
    succeed(moldau("token", "expire", made["id"], "--yes"))
    fail(moldau("token", "renew", made["id"]), 1, "no delegation token")
    fail(moldau("token", "create", "--renewer", "alice"), 2, "User:name")


def test_users_before_the_first_start(tmp_path: Path) -> None:
    run = runner("localhost:1")
    data = tmp_path / "data"
    succeed(run("user", "create", "broker", "--dir", str(data), stdin="hush\n"))
    succeed(run("user", "create", "admin", "--dir", str(data), "--mechanism", "SCRAM-SHA-512", stdin="hush2\n"))
    (written,) = data.iterdir()
    assert stat.S_IMODE(written.stat().st_mode) == 0o600
    assert "hush" not in written.read_text()
    with sasl_broker(directory=data) as broker:
        assert enters(broker, "SCRAM-SHA-256", "broker", "hush")
        assert enters(broker, "SCRAM-SHA-512", "admin", "hush2")
        assert not written.exists()
    fail(run("user", "create", "late", "--dir", str(data), stdin="x\n"), 2, "has run")


def test_a_damaged_file_of_users_stops_the_start(tmp_path: Path) -> None:
    from moldau.testing.broker import BrokerFailed

    (tmp_path / "moldau-users.json").write_text("{")
    with pytest.raises(BrokerFailed, match=r"moldau-users.json is damaged"):
        sasl_broker(directory=tmp_path).start()


def test_profiles(broker: Broker, properties: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    (tmp_path / "moldau").mkdir()
    kept = tmp_path / "moldau" / "test.properties"
    kept.write_text(properties.read_text() + f"bootstrap.servers={broker.bootstrap_servers}\n")
    os.chmod(kept, 0o644)
    monkeypatch.delenv("MOLDAU_BOOTSTRAP", raising=False)
    run = runner(broker.bootstrap_servers)
    fail(run("--profile", "test", "topic", "list"), 2, "can be read by others", "chmod 600")
    os.chmod(kept, 0o600)
    assert run("--profile", "test", "topic", "list").returncode == 0
    assert run("--profile", "test", "txn", "list").returncode == 0
    fail(run("--profile", "none", "topic", "list"), 2, "no profile 'none'")
    fail(run("--profile", "../x", "topic", "list"), 2, "not a name")


@pytest.mark.parametrize("command", [("topic", "list"), ("txn", "list"), ("group", "list"), ("cluster", "describe")])
def test_commands_of_both_clients_log_in(broker: Broker, moldau: Run, command: tuple[str, ...]) -> None:
    assert moldau(*command).returncode == 0
    assert runner(broker.bootstrap_servers)(*command).returncode == 1
