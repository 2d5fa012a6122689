"""Clients over TLS: each library, client certificates, certificates that change under load, floods of handshakes."""

import asyncio
import contextlib
import os
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.helpers import create_ssl_context
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from moldau.testing import Broker
from moldau.tools.certs.authority import Authority, write_private
from support.brokers.processes import ExternalBroker, free_port
from support.clients import go
from support.clients.cli import runner
from support.eventually import eventually
from support.kafka import jvm

SECONDS = 30
COUNT = 300
VALUE = os.urandom(5000)


class Secured:
    """A broker with three listeners: TLS, TLS with client certificates, and TLS 1.2 with a PKCS#12 key store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority()
        self.ca = write_private(folder / "ca.pem", self.authority.pem)
        self.alice = write_private(folder / "alice.pem", self.authority.client("alice").keystore_pem())
        self.keystore = folder / "broker.pem"
        self.renew()
        own = self.authority.broker(["localhost", "127.0.0.1"])
        write_private(folder / "other.p12", own.pkcs12("secret"))
        self.ports = {"SSL": free_port(), "MUTUAL": free_port(), "OLD": free_port()}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        self.broker = Broker(
            folder / "data",
            **{
                "listeners": listeners,
                "advertised.listeners": listeners,
                "listener.security.protocol.map": "SSL:SSL,MUTUAL:SSL,OLD:SSL",
                "inter.broker.listener.name": "SSL",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self.keystore,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.ca,
                "listener.name.mutual.ssl.client.auth": "required",
                "listener.name.old.ssl.keystore.type": "PKCS12",
                "listener.name.old.ssl.keystore.location": folder / "other.p12",
                "listener.name.old.ssl.keystore.password": "secret",
                "listener.name.old.ssl.enabled.protocols": "TLSv1.2",
                "listener.name.old.ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            },
        ).start()

    def renew(self, *hosts: str, subject: Any = None) -> None:
        """Another certificate in the key store of the broker, as a renewal puts it there."""
        made = self.authority.broker(hosts or ("localhost", "127.0.0.1"), subject=subject)
        written = write_private(self.folder / "new.pem", made.keystore_pem())
        written.rename(self.keystore)

    def at(self, listener: str = "SSL") -> str:
        return f"127.0.0.1:{self.ports[listener]}"

    def client(self, listener: str = "SSL", certificate: Path | None = None) -> dict[str, Any]:
        """librdkafka's settings."""
        settings = {
            "bootstrap.servers": self.at(listener),
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.ca),
        }
        own = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(certificate)}
        return settings | (own if certificate else {})

    def shown(self, listener: str = "SSL") -> tuple[str, str, str]:
        """Serial number, TLS version and cipher of a new connection."""
        context = ssl.create_default_context(cafile=str(self.ca))
        with (
            socket.create_connection(("127.0.0.1", self.ports[listener])) as plain,
            context.wrap_socket(plain, server_hostname="localhost") as tls,
        ):
            certificate, cipher = tls.getpeercert(), tls.cipher()
            assert certificate is not None
            assert cipher is not None
            return str(certificate["serialNumber"]), str(tls.version()), cipher[0]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("tls"))
    yield made
    made.broker.stop()


def there_and_back(client: dict[str, Any], topic: str) -> None:
    producer = Producer(client)
    for _ in range(COUNT):
        producer.produce(topic, VALUE)
    assert producer.flush(SECONDS) == 0
    consumer = Consumer(client | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    found: list[Any] = []
    until = time.monotonic() + SECONDS
    while len(found) < COUNT and time.monotonic() < until:
        found += consumer.consume(COUNT, 1)
    consumer.close()
    assert [each.value() for each in found] == [VALUE] * COUNT


@pytest.mark.parametrize("listener", ["SSL", "OLD"])
def test_confluent(secured: Secured, listener: str) -> None:
    there_and_back(secured.client(listener), f"confluent-{listener}")


def test_confluent_with_a_certificate(secured: Secured) -> None:
    there_and_back(secured.client("MUTUAL", secured.alice), "mutual")
    with pytest.raises(KafkaException):
        AdminClient(secured.client("MUTUAL")).list_topics(timeout=3)
    eventually(lambda: "showed no certificate" in secured.broker.log_text(), "the broker says why")


def test_each_listener_has_its_certificate_version_and_ciphers(secured: Secured) -> None:
    assert secured.shown("SSL")[0] != secured.shown("OLD")[0]
    assert secured.shown("SSL")[1] == "TLSv1.3"
    assert secured.shown("OLD")[1:] == ("TLSv1.2", "ECDHE-ECDSA-AES256-GCM-SHA384")


def test_aiokafka(secured: Secured) -> None:
    async def scenario() -> None:
        context = create_ssl_context(cafile=str(secured.ca))
        given = {"bootstrap_servers": secured.at(), "security_protocol": "SSL", "ssl_context": context}
        async with AIOKafkaProducer(**given) as producer:
            for _ in range(COUNT):
                await producer.send("aio", VALUE)
            await producer.flush()
        async with AIOKafkaConsumer(**given) as consumer:
            consumer.assign([TopicPartition("aio", 0)])
            await consumer.seek_to_beginning()
            found = [await asyncio.wait_for(consumer.getone(), SECONDS) for _ in range(COUNT)]
        assert [each.value for each in found] == [VALUE] * COUNT

    asyncio.run(asyncio.wait_for(scenario(), 2 * SECONDS))


def test_kafka_python(secured: Secured) -> None:
    given = {"bootstrap_servers": secured.at(), "security_protocol": "SSL", "ssl_cafile": str(secured.ca)}
    producer = KafkaProducer(**given)
    for _ in range(COUNT):
        producer.send("python", VALUE)
    producer.flush(SECONDS)
    producer.close()
    consumer = KafkaConsumer(**given, consumer_timeout_ms=SECONDS * 1000)
    consumer.assign([PythonPartition("python", 0)])
    consumer.seek_to_beginning()
    assert [next(consumer).value for _ in range(COUNT)] == [VALUE] * COUNT
    consumer.close()


@pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
def test_java_tools_with_a_certificate(secured: Secured, tmp_path: Path) -> None:
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={secured.ca}\n"
        f"ssl.keystore.type=PEM\nssl.keystore.location={secured.alice}\n"
    )
    at = ["--bootstrap-server", secured.at("MUTUAL"), "--command-config", str(config)]
    made = jvm.run("org.apache.kafka.tools.TopicCommand", *at, "--create", "--topic", "java")
    assert made.returncode == 0, made.stdout + made.stderr
    at = ["--bootstrap-server", secured.at("MUTUAL"), "--topic", "java"]
    with_config = ["--command-config", str(config)]
    sent = jvm.run("org.apache.kafka.tools.ConsoleProducer", *at, *with_config, stdin="one\ntwo\n")
    assert sent.returncode == 0, sent.stdout + sent.stderr
    wanted = ["--from-beginning", "--max-messages", "2", "--timeout-ms", "20000"]
    read = jvm.run("org.apache.kafka.tools.consumer.ConsoleConsumer", *at, *with_config, *wanted)
    assert read.stdout.split() == ["one", "two"], read.stdout + read.stderr


@go.WITHOUT_GO
def test_go(secured: Secured, go_program: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    there_and_back(secured.client(), "go-tls")
    monkeypatch.setenv("CLIENT_CA", str(secured.ca))
    go.client(go_program, "produce", ExternalBroker(secured.at()), "go-tls", "none", 10)
    consumer = Consumer(secured.client() | {"group.id": "go"})
    try:
        assert consumer.get_watermark_offsets(Partition("go-tls", 0), SECONDS) == (0, COUNT + 10)
    finally:
        consumer.close()


def test_a_renewed_certificate_is_loaded_while_clients_go_on(secured: Secured) -> None:
    old, other = secured.shown()[0], secured.shown("OLD")[0]
    producer, failed, stop = Producer(secured.client()), [], threading.Event()

    def produce() -> None:
        while not stop.is_set():
            producer.produce("reload", VALUE, on_delivery=lambda error, _: failed.append(error) if error else None)
            producer.poll(0.005)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        secured.renew()
        eventually(lambda: secured.shown()[0] != old, "the new certificate is shown")
    finally:
        stop.set()
        thread.join()
    assert producer.flush(SECONDS) == 0
    assert not failed
    assert secured.shown("OLD")[0] == other
    assert "Listener SSL has new TLS settings or a new certificate" in secured.broker.log_text()


def test_a_certificate_that_cannot_be_used_is_refused(secured: Secured) -> None:
    shown = secured.shown()[0]
    before = secured.keystore.read_text()
    for content, words in (
        ("nonsense", "has no private key in PEM"),
        (secured.authority.broker(["elsewhere"]).keystore_pem(), "set ssl.allow.dn.changes=true"),
        (secured.authority.broker(["localhost", "127.0.0.1"], days=-1).keystore_pem(), "the certificate expired on"),
    ):
        secured.keystore.write_text(content)
        eventually(lambda words=words: words in secured.broker.log_text(), words)  # type: ignore[misc]
        assert secured.shown()[0] == shown
    secured.keystore.write_text(before)


def altered(secured: Secured, **values: object) -> str:
    """The error of IncrementalAlterConfigs on the broker, or ""."""
    entries = [
        ConfigEntry(name, str(value), incremental_operation=AlterConfigOpType.SET) for name, value in values.items()
    ]
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=entries)
    admin = AdminClient(secured.client())
    (outcome,) = admin.incremental_alter_configs([resource]).values()
    try:
        outcome.result(SECONDS)
    except KafkaException as problem:
        return str(problem.args[0].str())
    return ""


def test_a_listener_is_altered_over_the_wire(secured: Secured, tmp_path: Path) -> None:
    old = secured.shown("OLD")[0]
    location = "listener.name.old.ssl.keystore.location"
    assert "cannot be read: No such file" in altered(secured, **{location: tmp_path / "none"})
    assert "only per-listener" in altered(secured, **{"ssl.keystore.location": tmp_path / "none"})
    renewed = secured.authority.broker(["localhost", "127.0.0.1"]).pkcs12("other")
    path = write_private(secured.folder / "renewed.p12", renewed)
    assert "does not open with listener.name.old.ssl.keystore.password" in altered(secured, **{location: path})
    assert altered(secured, **{location: path, "listener.name.old.ssl.keystore.password": "other"}) == ""
    eventually(lambda: secured.shown("OLD")[0] != old, "the new certificate is shown")


def test_a_thousand_handshakes_that_never_end_disturb_nobody(secured: Secured) -> None:
    process = psutil.Process(secured.broker.pid)
    there_and_back(secured.client(), "calm")
    before = process.memory_info().rss
    flood, first = [], hello()
    for number in range(1_000):
        flood.append(socket.create_connection(("127.0.0.1", secured.ports["SSL"])))
        flood[-1].sendall(first if number % 2 else first[: 20 + number % 200])  # half of them get the broker's part
    began = time.monotonic()
    there_and_back(secured.client(), "flooded")
    assert time.monotonic() - began < SECONDS
    grown = process.memory_info().rss - before
    for each in flood:
        each.close()
    assert grown < 100 * 1024 * 1024


def doctor(address: str, *properties: str) -> str:
    """What `moldau doctor` finds, on one line."""
    words = [part for each in properties for part in ("-X", each)]
    done = runner(address)("doctor", "--bootstrap", address, *words)
    return " ".join((done.stdout + done.stderr).split())


def test_the_doctor_finds_what_is_wrong(secured: Secured, tmp_path: Path) -> None:
    tls, trusted = "security.protocol=ssl", f"ssl.ca.location={secured.ca}"
    others = Authority("Others")
    foreign = write_private(tmp_path / "foreign.pem", others.client("alice").keystore_pem())
    others_ca = write_private(tmp_path / "others.pem", others.pem)
    shown = [f"ssl.certificate.location={foreign}", f"ssl.key.location={foreign}"]
    assert "accepts TLS" in doctor(secured.at(), tls, trusted)
    assert "speaks TLS, and this client does not" in doctor(secured.at())
    assert "an authority that this client does not trust" in doctor(secured.at(), tls, f"ssl.ca.location={others_ca}")
    assert "wants a certificate of the client" in doctor(secured.at("MUTUAL"), tls, trusted)
    assert "does not trust the certificate of this client" in doctor(secured.at("MUTUAL"), tls, trusted, *shown)
    log = secured.broker.log_text()
    assert "the client's certificate is not accepted: unable to get local issuer certificate" in log
    assert "the client does not trust this broker's certificate" in log


def test_the_doctor_finds_a_wrong_host_and_an_expired_certificate(tmp_path: Path) -> None:
    authority = Authority()
    ca = write_private(tmp_path / "ca.pem", authority.pem)
    for name, made, words in (
        ("host", authority.broker(["elsewhere"]), "does not name 127.0.0.1"),
        ("expired", authority.broker(["127.0.0.1"], days=-1), "has expired"),
    ):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(write_private(tmp_path / f"{name}.pem", made.keystore_pem()))
        with socket.create_server(("127.0.0.1", 0)) as listening:
            threading.Thread(target=greet, args=(listening, context), daemon=True).start()
            said = doctor(f"127.0.0.1:{listening.getsockname()[1]}", "security.protocol=ssl", f"ssl.ca.location={ca}")
        assert words in said


def greet(listening: socket.socket, context: ssl.SSLContext) -> None:
    """Accept connections and do their handshakes, until the socket is closed."""
    while True:
        try:
            plain, _ = listening.accept()
        except OSError:
            return
        with contextlib.suppress(OSError):
            context.wrap_socket(plain, server_side=True).close()


def hello() -> bytes:
    """The first message of a TLS handshake."""
    outgoing = ssl.MemoryBIO()
    tls = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()
