"""No secret is shown: a run that uses every secret setting, and a search for them in all that can be seen of it."""

import base64
import json
import secrets
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource
from joserfc import jwt
from joserfc.jwk import KeySet, RSAKey

from moldau.client.direct.connection import Connection
from moldau.client.direct.security import Security
from moldau.security.sasl_client import AuthenticationFailed, Sasl
from moldau.tools.certs.authority import Authority, Certificate, write_private
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from support.brokers.processes import BrokerProcess, broker_environment, free_port
from support.clients.raw import RawClient
from support.clients.sasl import SECONDS, client_settings, jaas, log_in
from support.eventually import eventually

BROKER, TOPIC = 4, 2  # types of config resources
SAMPLE_S = 0.05
# The log with everything that any module would ever say.
DEBUGGED = """
import logging
from moldau.broker import process
from moldau.tools.main import main

set_up = process.set_up_logging

def set_up_for_all_levels():
    set_up()
    logging.basicConfig(level=logging.DEBUG)
    logging.getLogger("moldau").setLevel(logging.DEBUG)

process.set_up_logging = set_up_for_all_levels
main()
"""


class Secrets:
    """The secrets of a run, each with a text of its own to search for."""

    def __init__(self) -> None:
        self.needles: dict[str, str] = {}

    def new(self, name: str) -> str:
        return self.note(name, f"hush-{secrets.token_hex(8)}")

    def note(self, name: str, text: str) -> str:
        self.needles[name] = text
        return text

    def found_in(self, text: str) -> set[str]:
        """The names of the secrets that are in a text, as they are or in base64."""
        return {
            name
            for name, needle in self.needles.items()
            if needle in text or base64.b64encode(needle.encode()).decode().rstrip("=") in text
        }


class ProcessList:
    """The command lines of all processes on the machine while it is open."""

    def __init__(self) -> None:
        self.lines: set[str] = set()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def _sample(self) -> None:
        while not self._over.wait(SAMPLE_S):
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                try:
                    self.lines.add(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
                except OSError:  # it has ended
                    continue

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._over.set()
        self._thread.join()


class Run:
    """A broker with every secret setting, and all that was seen of it, by where it was seen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.secrets = Secrets()
        self.seen: dict[str, str] = {}
        self.ports = {name: free_port() for name in ("SASL_PLAINTEXT", "CLIENTS", "STORES", "TEXTS")}
        self.key = RSAKey.generate_key(2048, {"kid": "one"})
        self.authority = Authority()
        self.ca = write_private(folder / "ca.pem", self.authority.pem)
        self.users = {name: self.secrets.new(f"password of {name}") for name in ("admin", "alice", "broker")}
        self.config = write_private(folder / "server.properties", self.properties())
        script = folder / "debugged.py"
        script.write_text(DEBUGGED)
        self.broker = self._process(script)

    # ── the broker ──

    def _process(self, script: Path) -> BrokerProcess:
        config, run = self.config, self

        class Debugged(BrokerProcess):
            def command(self) -> list[str]:
                return [sys.executable, str(script), "broker", "--config", str(config)]

            def environment(self) -> dict[str, str]:
                return run.environment()

        return Debugged(self.folder / "broker", port=self.ports["SASL_PLAINTEXT"])

    def environment(self) -> dict[str, str]:
        login = jaas({"username": "broker", "password": self.users["broker"], **self.listed(self.users)})
        return {**broker_environment(), "XDG_CONFIG_HOME": str(self.folder / "config"), "LOGIN": login}

    @staticmethod
    def listed(users: dict[str, str]) -> dict[str, str]:
        return {f"user_{name}": password for name, password in users.items()}

    @property
    def data(self) -> Path:
        return self.folder / "data"

    def properties(self) -> str:
        folder, new = self.folder, self.secrets.new
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        keys = folder / "jwks.json"
        keys.write_text(json.dumps(KeySet([self.key]).as_dict(private=False)))
        write_private(folder / "kept.properties", f"token.key={new('delegation.token.secret.key')}\n")
        settings = {
            "listeners": listeners,
            "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CLIENTS:SASL_SSL,STORES:SSL,TEXTS:SSL",
            "inter.broker.listener.name": "SASL_PLAINTEXT",
            "log.dirs": str(self.data),
            "config.providers": "file,env",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.jaas.config": "${env:LOGIN}",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "delegation.token.secret.key": f"${{file:{folder / 'kept.properties'}:token.key}}",
            "connection.failed.authentication.delay.ms": "0",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
            "moldau.audit.enable": "true",
            # Without effect on this broker, and secrets all the same.
            "sasl.oauthbearer.client.credentials.client.secret": new("client secret"),
            "sasl.oauthbearer.assertion.private.key.passphrase": new("passphrase"),
            "zookeeper.ssl.keystore.password": new("zookeeper.ssl.keystore.password"),
            "zookeeper.ssl.truststore.password": new("zookeeper.ssl.truststore.password"),
            **self.key_stores(),
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())

    def key_stores(self) -> dict[str, object]:
        """A PEM file with an encrypted key, PKCS#12 files, and PEM texts."""
        folder, new = self.folder, self.secrets.new
        passwords = {name: new(f"{name} password") for name in ("clients key", "stores", "trusted stores", "texts key")}
        own = {name: self.authority.broker(["localhost", "127.0.0.1"]) for name in ("clients", "stores", "texts")}
        write_private(folder / "clients.pem", own["clients"].keystore_pem(passwords["clients key"]))
        write_private(folder / "stores.p12", own["stores"].pkcs12(passwords["stores"]))
        write_private(folder / "trusted.p12", own["stores"].pkcs12(passwords["trusted stores"]))
        text = self.noted(own["texts"], passwords["texts key"])
        given: dict[str, dict[str, object]] = {
            "clients.ssl.keystore": {"type": "PEM", "location": folder / "clients.pem"},
            "clients.ssl.key": {"password": passwords["clients key"]},
            "stores.ssl.keystore": {
                "type": "PKCS12",
                "location": folder / "stores.p12",
                "password": passwords["stores"],
            },
            "stores.ssl.truststore": {
                "type": "PKCS12",
                "location": folder / "trusted.p12",
                "password": passwords["trusted stores"],
            },
            "texts.ssl.keystore": {"type": "PEM", "key": text, "certificate.chain": one_line(own["texts"].chain_pem)},
            "texts.ssl.key": {"password": passwords["texts key"]},
            "texts.ssl.truststore": {"type": "PEM", "certificates": one_line(self.authority.pem)},
        }
        return {f"listener.name.{prefix}.{name}": value for prefix, row in given.items() for name, value in row.items()}

    def noted(self, certificate: Certificate, password: str) -> str:
        """The private key as text; the middle of it is what to search for."""
        pem = certificate.key_pem(password)
        self.secrets.note("key as text", pem.splitlines()[2])
        return one_line(pem)

    # ── what is done with it ──

    def moldau(self, *words: str, stdin: str = "", code: int | None = 0, shows_secrets: bool = False) -> str:
        """Run a command; what it says is searched, unless it is there to show a secret."""
        command = [sys.executable, "-m", "moldau", *words]
        done = subprocess.run(
            command, input=stdin, capture_output=True, text=True, timeout=60, check=False, env=self.environment()
        )
        assert code in (done.returncode, None), done.stdout + done.stderr
        if not shows_secrets:
            self.seen[f"moldau {' '.join(words)}"] = done.stdout + done.stderr
        return done.stdout

    def client_file(self, name: str, user: str, password: str) -> Path:
        """A private file with the properties of a client."""
        properties = {
            "bootstrap.servers": f"127.0.0.1:{self.ports['CLIENTS']}",
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca,
            "sasl.mechanism": "SCRAM-SHA-512" if user == "root" else "PLAIN",
            "sasl.jaas.config": jaas({"username": user, "password": password}),
        }
        path = self.folder / "config" / "moldau" / f"{name}.properties"
        path.parent.mkdir(parents=True, exist_ok=True)
        return write_private(path, "".join(f"{each}={value}\n" for each, value in properties.items()))

    def log_in(self, sasl: Sasl) -> bool:
        with RawClient(self.broker.bootstrap) as client:
            try:
                found = log_in(client, sasl)
            except AuthenticationFailed as failed:
                self.seen[f"login with {sasl.mechanism} that failed"] = str(failed)
                return False
        if found.error:
            self.seen[f"response to a failed login of {sasl.mechanism} {sasl.username}"] = found.message or ""
        return not found.error

    def bearer(self, user: str, key: RSAKey) -> str:
        claims = {"sub": user, "exp": int(time.time()) + 600}
        token = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key, algorithms=["RS256"])
        self.secrets.note(f"bearer token of {user}", token.rpartition(".")[2])
        return token

    def admin(self) -> AdminClient:
        return AdminClient(client_settings(self.broker.bootstrap, "PLAIN", "admin", self.users["admin"]))

    def alter(self, name: str, value: str) -> bool:
        entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.BROKER, "1", incremental_configs=[entry])
        admin = self.admin()
        (done,) = admin.incremental_alter_configs([resource]).values()
        try:
            done.result(SECONDS)
        except KafkaException as refused:
            self.seen[f"refusal of {name}"] = str(refused)
            return False
        return True

    def describe(self, when: str) -> None:
        """All settings as DescribeConfigs has them, with synonyms and documentation."""
        resources = tuple(
            DescribeConfigsResource(resource_type=BROKER, resource_name=name, configuration_keys=None)
            for name in ("1", "")
        )
        asked = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
        sasl = Sasl("PLAIN", "admin", self.users["admin"])
        port = self.ports["SASL_PLAINTEXT"]
        client = Connection("127.0.0.1", port, Security(sasl=sasl), client_id="test", timeout_s=SECONDS)
        with closing(client):
            answered = client.ask(asked, DescribeConfigsResponse)
        assert sum(len(each.configs) for each in answered.results) > 300
        self.seen[f"DescribeConfigs {when}"] = repr(answered)


def one_line(pem: str) -> str:
    return pem.replace("\n", "\\n")


def test_no_secret_is_shown_anywhere(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with ProcessList() as processes:
        use_every_secret(run)
    run.seen["the process list"] = "\n".join(processes.lines)
    run.seen["the log"] = run.broker.log_text()
    assert "invalid credentials" in run.seen["the log"]
    assert any("debugged.py" in line for line in processes.lines)
    assert len(run.secrets.needles) > 20
    shown = {where: found for where, text in run.seen.items() if (found := run.secrets.found_in(text))}
    assert shown == {}
    check_files(run)


def use_every_secret(run: Run) -> None:
    root = run.secrets.new("password of root")
    run.moldau("user", "create", "root", "--dir", str(run.data), stdin=f"{root}\n")
    (first,) = [path for path in run.data.iterdir() if path.is_file()]
    assert first.stat().st_mode & 0o777 == 0o600
    run.broker.start()
    try:
        use_logins(run, root)
        use_commands(run, root)
        use_configs(run)
        audit = read_audit(run)
        assert {"failed-login", "action"} <= {json.loads(each)["event"] for each in audit}
        run.seen["__audit"] = "\n".join(audit)
    finally:
        run.broker.stop()
    fail_to_start(run)


def use_logins(run: Run, root: str) -> None:
    new, users = run.secrets.new, run.users
    assert run.log_in(Sasl("PLAIN", "alice", users["alice"]))
    assert run.log_in(Sasl("SCRAM-SHA-512", "root", root))
    assert run.log_in(Sasl("OAUTHBEARER", token=run.bearer("olga", run.key)))
    assert not run.log_in(Sasl("PLAIN", "alice", new("wrong password")))
    assert not run.log_in(Sasl("PLAIN", new("password as a name"), "x"))
    assert not run.log_in(Sasl("SCRAM-SHA-256", new("password as a name with SCRAM"), "x"))
    assert not run.log_in(Sasl("SCRAM-SHA-512", "root", new("wrong password of SCRAM")))
    stranger = RSAKey.generate_key(2048, {"kid": "one"})
    assert not run.log_in(Sasl("OAUTHBEARER", token=run.bearer("mallory", stranger)))


def use_commands(run: Run, root: str) -> None:
    new = run.secrets.new
    as_admin = ("-X", f"@{run.client_file('boss', 'admin', run.users['admin'])}")
    run.moldau("--profile", "boss", "topic", "create", "orders")
    run.moldau("user", "create", "carol", *as_admin, stdin=f"{new('password of carol')}\n")
    password = write_private(run.folder / "password", new("other password of carol"))
    run.moldau("user", "alter", "carol", "--password-file", str(password), *as_admin)
    run.moldau("user", "describe", "carol", "-o", "json", *as_admin)
    run.moldau("security", "check", "--principal", "User:alice", *as_admin)
    run.client_file("wrong", "admin", new("wrong password of a profile"))
    run.moldau("--profile", "wrong", "topic", "list", code=1)
    run.moldau("doctor", *as_admin, code=None)  # the machine may have other faults
    token = json.loads(run.moldau("token", "create", "-o", "json", *as_admin, shows_secrets=True))
    run.secrets.note("HMAC of a token", token["hmac"])
    assert run.log_in(Sasl("SCRAM-SHA-256", token["id"], token["hmac"], by_token=True))
    for words in (("list", "-o", "json"), ("renew", token["id"]), ("expire", "-y", token["id"])):
        run.moldau("token", *words, *as_admin)
    start = run.secrets.note("start of a password with an escape", "~zq~")
    broken = write_private(run.folder / "broken.properties", f"sasl.password=\\u{start}and more\n")
    run.moldau("topic", "list", "-X", f"@{broken}", code=2)


def use_configs(run: Run) -> None:
    new = run.secrets.new
    run.describe("at first")
    name = "listener.name.sasl_plaintext.plain.sasl.jaas.config"
    users = {**run.users, "dan": new("password of dan")}
    assert not run.alter(name, f'PlainLoginModule required user_x="{new("password without a quote")};')
    assert not run.alter(name, f"{new('password instead of a module')}")
    assert run.alter(name, jaas(run.listed(users)))
    eventually(lambda: run.log_in(Sasl("PLAIN", "dan", users["dan"])), "the new user can log in")
    assert not run.alter("listener.name.stores.ssl.keystore.password", new("wrong password of a store"))
    assert not run.alter("listener.name.texts.ssl.keystore.key", new("no key at all"))
    run.describe("after changes")


def read_audit(run: Run) -> list[str]:
    settings = client_settings(run.broker.bootstrap, "PLAIN", "admin", run.users["admin"])
    consumer = Consumer({**settings, "group.id": "auditors"})
    partition = TopicPartition("__audit", 0, 0)
    consumer.assign([partition])
    _, end = consumer.get_watermark_offsets(partition, timeout=SECONDS)
    found = [message.value().decode() for message in consumer.consume(end, timeout=SECONDS)]
    consumer.close()
    assert len(found) == end
    return found


def fail_to_start(run: Run) -> None:
    """Settings that are refused, with their reasons."""
    text = run.config.read_text()
    password = "listener.name.stores.ssl.keystore.password"
    for name, value in (
        (password, run.secrets.new("other password of a store")),
        ("listener.name.sasl_plaintext.plain.sasl.jaas.config", run.secrets.new("no JAAS string")),
        ("delegation.token.secret.kye", run.secrets.new("misspelt name")),
        ("listener.name.texts.ssl.keystore.key", run.secrets.new("no key")),
    ):
        kept = [line for line in text.splitlines() if not line.startswith(f"{name}=")]
        config = write_private(run.folder / "wrong.properties", "\n".join([*kept, f"{name}={value}\n"]))
        command = [sys.executable, "-m", "moldau", "broker", "--config", str(config)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=run.environment())
        assert done.returncode in (1, 2), done.stderr
        run.seen[f"start with a wrong {name}"] = done.stdout + done.stderr


def check_files(run: Run) -> None:
    """Files with credentials are private, and passwords are in none of them but those of changed settings."""
    store = run.data / "moldau-metadata.sqlite"
    assert store.stat().st_mode & 0o777 == 0o600
    for path in run.data.rglob("*"):
        if path.is_file() and path != store:
            assert run.secrets.found_in(path.read_bytes().decode("latin-1")) == set(), path
    with closing(sqlite3.connect(store)) as opened:
        rows = dict(opened.execute("SELECT path, CAST(data AS TEXT) FROM node").fetchall())
    # Of the JAAS string that was set while the broker ran, which is the only one in the store.
    changed = {f"password of {name}" for name in (*run.users, "dan")}
    assert run.secrets.found_in("\n".join(rows.values())) == changed
    credentials = rows["/config/users/carol"]
    keys = [each.partition('"')[0] for each in credentials.replace(",", '"').split("_key=")[1:]]
    assert len(keys) >= 2
    assert not [where for where, text in run.seen.items() if any(key in text for key in keys)]
