"""The direct client through TLS and every SASL mechanism, to an Apache Kafka that asks for them."""

import base64
import json
import pickle
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from moldau.base.ids import TopicPartition
from moldau.client.admin.cluster import open_cluster as open_command_cluster
from moldau.client.admin.errors import AdminError
from moldau.client.admin.target import Target
from moldau.client.admin.transactions import Filters, list_transactions
from moldau.client.direct.failure import Failure
from moldau.client.direct.fetch import FetchedBatches, FetchSizes, read_range
from moldau.client.direct.metadata import Cluster
from moldau.client.direct.produce import Producer
from moldau.client.direct.records import decode
from moldau.client.direct.security import Security, Tls
from moldau.security.sasl_client import Sasl
from moldau.spark.cluster import open_cluster
from moldau.spark.options import read_options, write_options
from support.brokers.processes import HOST, ApacheKafkaProcess, free_port
from support.clients.raw import RawClient
from support.kafka import jvm

pytestmark = [
    pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="makes certificates with openssl, which is not here"),
]

TOPIC = "secured"
LOGIN = "org.apache.kafka.common.security"
SCRAMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
SHORT_SESSIONS = "SCRAM-SHA-256"  # without TLS its sessions last a second


class Pair(NamedTuple):
    certificate: Path
    key: Path


class SecuredKafka(ApacheKafkaProcess):
    """With a listener of SASL over TLS, one of TLS that wants certificates, and one of SASL alone."""

    def __init__(self, directory: Path, own: Pair, client: Pair) -> None:
        self.ports = {"SASL_SSL": free_port(), "SSL": free_port(), "SASL_PLAINTEXT": free_port()}
        super().__init__(directory)
        store = directory / "store.pem"
        store.write_text(own.key.read_text() + own.certificate.read_text())
        added = ",".join(f"{name}://{HOST}:{port}" for name, port in self.ports.items())
        plain = f"PLAINTEXT://{HOST}:{self.port}"
        self.settings |= {
            "listeners": f"{plain},{added},CONTROLLER://{HOST}:{self.controller_port}",
            "advertised.listeners": f"{plain},{added}",
            "listener.security.protocol.map": ",".join(
                f"{name}:{name}" for name in ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
            )
            + ",CONTROLLER:PLAINTEXT",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(store),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(client.certificate),
            "listener.name.ssl.ssl.client.auth": "required",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAMS, "OAUTHBEARER")),
        }
        for listener in ("sasl_ssl", "sasl_plaintext"):
            prefix = f"listener.name.{listener}"
            plain_login = f'{LOGIN}.plain.PlainLoginModule required user_alice="wonder";'
            self.settings[f"{prefix}.plain.sasl.jaas.config"] = plain_login
            for mechanism in SCRAMS:
                login = f"{LOGIN}.scram.ScramLoginModule required;"
                self.settings[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = login
            bearer = f'{LOGIN}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="broker";'
            self.settings[f"{prefix}.oauthbearer.sasl.jaas.config"] = bearer
        self.settings[f"listener.name.sasl_plaintext.{SHORT_SESSIONS.lower()}.connections.max.reauth.ms"] = "1000"

    def format(self, *more: str) -> None:
        users = [part for name in SCRAMS for part in ("--add-scram", f"{name}=[name=alice,password=wonder]")]
        super().format(*users, *more)

    def at(self, listener: str) -> str:
        return f"{HOST}:{self.ports[listener]}"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Pair, Pair, Pair]:
    """Certificates of the broker, of the client, and of a stranger."""
    folder = tmp_path_factory.mktemp("certificates")

    def make(name: str) -> Pair:
        pair = Pair(folder / f"{name}.pem", folder / f"{name}.key")
        wanted = ["-x509", "-newkey", "rsa:2048", "-nodes", "-days", "30", "-subj", f"/CN={name}"]
        files = ["-keyout", str(pair.key), "-out", str(pair.certificate)]
        names = ["-addext", f"subjectAltName=IP:{HOST}"]
        subprocess.run(["openssl", "req", *wanted, *files, *names], check=True, capture_output=True)
        return pair

    return make("broker"), make("client"), make("stranger")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory, pairs: tuple[Pair, Pair, Pair]) -> Iterator[SecuredKafka]:
    process = SecuredKafka(tmp_path_factory.mktemp("kafka"), pairs[0], pairs[1])
    process.start()
    with RawClient(process.bootstrap) as raw:
        raw.create_topic(TOPIC)
    yield process
    process.close()


def token() -> str:
    """A token without a signature, which Kafka's default validator takes."""

    def part(value: dict[str, object]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")

    now = int(time.time())  # Kafka counts milliseconds: a part of one more would be in its future
    return f"{part({'alg': 'none'})}.{part({'sub': 'alice', 'iat': now, 'exp': now + 600})}."


def there_and_back(writing: Cluster, reading: Cluster) -> None:
    """A record goes in and comes out."""
    with writing, reading, Producer(writing, idempotent=False) as producer:
        assert (producer.write(TOPIC, [None], [b"v"]) or producer.flush()) is None
        chunk = next(read_range(reading, TopicPartition(TOPIC, 0), 0, 1))
        assert isinstance(chunk, FetchedBatches), chunk
        assert decode(chunk.batches, end=1).values == [b"v"]


def refused(address: str, security: Security) -> Failure:
    with Cluster(address, security, timeout_s=30) as cluster:
        found = cluster.describe([TOPIC])
        assert isinstance(found, Failure), found
        return found


@pytest.mark.parametrize("listener", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS, "OAUTHBEARER"])
def test_every_mechanism_opens_the_door(
    kafka: SecuredKafka, pairs: tuple[Pair, Pair, Pair], listener: str, mechanism: str
) -> None:
    tls = Tls(ca=str(pairs[0].certificate)) if listener == "SASL_SSL" else None
    security = Security(tls, Sasl(mechanism, "alice", "wonder", token))
    there_and_back(Cluster(kafka.at(listener), security), Cluster(kafka.at(listener), security))


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS])
def test_a_wrong_password_is_told_at_once(kafka: SecuredKafka, mechanism: str) -> None:
    problem = refused(kafka.at("SASL_PLAINTEXT"), Security(sasl=Sasl(mechanism, "alice", "wrong")))
    assert (problem.name, problem.retriable) == ("SASL_AUTHENTICATION_FAILED", False)


def test_a_wrong_token_is_told_at_once(kafka: SecuredKafka) -> None:
    problem = refused(kafka.at("SASL_PLAINTEXT"), Security(sasl=Sasl("OAUTHBEARER", token="none")))
    assert (problem.name, problem.retriable) == ("SASL_AUTHENTICATION_FAILED", False)


def test_certificates_of_clients_as_files_and_as_texts(kafka: SecuredKafka, pairs: tuple[Pair, Pair, Pair]) -> None:
    own, client, _ = pairs
    files = Security(Tls(str(own.certificate), str(client.certificate), str(client.key)))
    texts = Security(Tls(*(each.read_text() for each in (own.certificate, client.certificate, client.key))))
    there_and_back(Cluster(kafka.at("SSL"), files), Cluster(kafka.at("SSL"), texts))


def test_a_broker_that_nobody_vouches_for_is_not_trusted(kafka: SecuredKafka, pairs: tuple[Pair, Pair, Pair]) -> None:
    problem = refused(kafka.at("SSL"), Security(Tls(ca=str(pairs[2].certificate))))
    assert not problem.retriable
    assert "certificate verify failed" in problem.message.lower()


def test_a_file_that_is_not_there_is_told_at_once(kafka: SecuredKafka) -> None:
    problem = refused(kafka.at("SSL"), Security(Tls(ca="/nowhere/ca.pem")))
    assert not problem.retriable


def test_a_producer_and_a_reader_outlive_their_sessions(kafka: SecuredKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker cuts those off who send something when their session is over (KIP-368)."""
    made: list[int] = []
    new = Cluster.dedicated_connection
    monkeypatch.setattr(Cluster, "dedicated_connection", lambda self, node: made.append(node) or new(self, node))  # type: ignore[func-returns-value]
    with RawClient(kafka.bootstrap) as raw:
        raw.create_topic("long")
    security = Security(sasl=Sasl(SHORT_SESSIONS, "alice", "wonder"))
    with Cluster(kafka.at("SASL_PLAINTEXT"), security) as cluster, Producer(cluster, batch_bytes=500) as producer:
        assert producer.start() is None
        written: list[bytes | None] = []
        while len(made) < 4:
            more = [b"%d" % number for number in range(len(written), len(written) + 100)]
            assert (producer.write("long", more, more) or producer.flush()) is None
            written += more
        read: list[bytes | None] = []
        small = FetchSizes(partition_max_bytes=max(500, 40 * len(written) // 100))
        for chunk in read_range(cluster, TopicPartition("long", 0), 0, len(written), sizes=small):
            assert isinstance(chunk, FetchedBatches), chunk
            read += decode(chunk.batches, end=len(written)).values
            if len(made) < 7:
                time.sleep(0.3)  # a caller that takes its time with each chunk
        assert read == written
        assert len(made) >= 6


def test_commands_take_librdkafkas_properties(kafka: SecuredKafka, pairs: tuple[Pair, Pair, Pair]) -> None:
    login = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "wonder"}
    secured = {"security.protocol": "sasl_ssl", **login, "ssl.ca.location": str(pairs[0].certificate)}
    with open_command_cluster(Target(kafka.at("SASL_SSL"), secured)) as cluster:
        assert list_transactions(cluster, Filters()) == []
    wrong = Target(kafka.at("SASL_SSL"), {**secured, "sasl.password": "guess"})
    with pytest.raises(AdminError, match=r"(?i)authentication failed"), open_command_cluster(wrong):
        pass


# ── as the users of Spark write it ──────────────────────────────────────────────────────────────────────────────────


def jaas(mechanism: str, password: str = "wonder") -> str:
    if mechanism == "OAUTHBEARER":
        claim = 'unsecuredLoginStringClaim_sub="alice"'
        return f"{LOGIN}.oauthbearer.OAuthBearerLoginModule required {claim};"
    module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
    return f'{LOGIN}.{module} required username="alice" password="{password}";'


def as_options(kafka: SecuredKafka, listener: str, **more: str) -> dict[str, str]:
    named = {f"kafka.{name.replace('_', '.')}": text for name, text in more.items()}
    return {"kafka.bootstrap.servers": kafka.at(listener), "kafka.security.protocol": listener, **named}


def by_options(options: dict[str, str]) -> tuple[Cluster, Cluster]:
    """To write and to read, from options that have been to a Python worker."""
    writing = pickle.loads(pickle.dumps(write_options({**options, "topic": TOPIC}).connection))
    reading = pickle.loads(pickle.dumps(read_options({**options, "subscribe": TOPIC}, stream=False).connection))
    return open_cluster(writing), open_cluster(reading)


@pytest.mark.parametrize("mechanism", ["PLAIN", *SCRAMS, "OAUTHBEARER"])
def test_options_with_a_java_login_open_the_door(
    kafka: SecuredKafka, pairs: tuple[Pair, Pair, Pair], mechanism: str
) -> None:
    login = {"sasl_mechanism": mechanism, "sasl_jaas_config": jaas(mechanism)}
    trust = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(pairs[0].certificate)}
    there_and_back(*by_options(as_options(kafka, "SASL_SSL", **login, **trust)))
    there_and_back(*by_options(as_options(kafka, "SASL_PLAINTEXT", **login)))


def test_options_with_certificates_open_the_door(kafka: SecuredKafka, pairs: tuple[Pair, Pair, Pair]) -> None:
    own, client, _ = pairs
    texts = {
        "ssl_truststore_certificates": own.certificate.read_text(),
        "ssl_keystore_certificate_chain": client.certificate.read_text(),
        "ssl_keystore_key": client.key.read_text(),
    }
    there_and_back(*by_options(as_options(kafka, "SSL", **texts)))
    store = client.key.with_suffix(".store.pem")
    store.write_text(client.key.read_text() + client.certificate.read_text())
    files = {"ssl_truststore_location": str(own.certificate), "ssl_keystore_location": str(store)}
    there_and_back(*by_options(as_options(kafka, "SSL", **files)))


def test_options_with_a_wrong_password_are_told_in_a_sentence(kafka: SecuredKafka) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_jaas_config": jaas("PLAIN", "guess")}
    with by_options(as_options(kafka, "SASL_PLAINTEXT", **login))[0] as cluster:
        problem = cluster.describe([TOPIC])
    assert isinstance(problem, Failure)
    assert problem.name == "SASL_AUTHENTICATION_FAILED"
    assert "guess" not in str(problem)


def test_options_with_a_token_that_cannot_be_had_are_told_in_a_sentence(kafka: SecuredKafka, tmp_path: Path) -> None:
    source = {"sasl_mechanism": "OAUTHBEARER", "sasl_oauthbearer_token_endpoint_url": f"file://{tmp_path}/none"}
    with by_options(as_options(kafka, "SASL_PLAINTEXT", **source))[0] as cluster:
        problem = cluster.describe([TOPIC])
    assert isinstance(problem, Failure)
    assert f"the token file {tmp_path}/none cannot be read" in problem.message
