"""A cluster with TLS between brokers, with host names checked and certificates on both sides, and to ZooKeeper."""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic

from moldau.testing import Broker
from moldau.testing.zookeeper import EnsembleMissing, ZooKeeper
from moldau.tools.certs.authority import Authority, write_private
from support.brokers.processes import free_port
from support.clients import confluent
from support.eventually import eventually

SECONDS = 60
COUNT = 500


class Files:
    """The certificates of a cluster."""

    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.ca = write_private(folder / "ca.pem", authority.pem)
        self.broker = write_private(folder / "broker.pem", authority.broker(["localhost", "127.0.0.1"]).keystore_pem())
        self.elsewhere = write_private(folder / "elsewhere.pem", authority.broker(["elsewhere"]).keystore_pem())
        self.folder = folder

    def stores(self, prefix: str, keystore: Path | None = None) -> dict[str, object]:
        return {
            f"{prefix}ssl.keystore.type": "PEM",
            f"{prefix}ssl.keystore.location": keystore or self.broker,
            f"{prefix}ssl.truststore.type": "PEM",
            f"{prefix}ssl.truststore.location": self.ca,
        }

    def settings(self, number: int, connect: str, keystore: Path | None = None) -> dict[str, object]:
        """All three ways with TLS: clients, brokers, ZooKeeper. No listener is without."""
        return {
            "node.id": number,
            "listeners": f"SSL://127.0.0.1:{free_port()}",
            "security.inter.broker.protocol": "SSL",
            **self.stores("", keystore),
            "ssl.client.auth": "required",
            "zookeeper.connect": connect,
            "zookeeper.ssl.client.enable": "true",
            **self.stores("zookeeper."),
            "zookeeper.session.timeout.ms": 6000,
            "zookeeper.connection.timeout.ms": 30_000,
            "default.replication.factor": 3,
            "offsets.topic.replication.factor": 3,
            "offsets.topic.num.partitions": 3,
            "min.insync.replicas": 2,
        }


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def zookeeper(files: Files) -> Iterator[ZooKeeper]:
    try:
        with ZooKeeper(tls=(files.broker, files.ca), log=True) as server:
            yield server
    except EnsembleMissing as missing:
        pytest.skip(str(missing))


def client(brokers: list[Broker], files: Files) -> dict[str, Any]:
    return {
        "bootstrap.servers": ",".join(each.bootstrap_servers for each in brokers),
        "security.protocol": "ssl",
        "ssl.ca.location": str(files.ca),
        "ssl.certificate.location": str(files.broker),
        "ssl.key.location": str(files.broker),
    }


def in_sync(admin: AdminClient) -> list[int]:
    found = confluent.metadata(admin, "t")
    return [] if found is None else [len(each.isrs) for each in found.topics["t"].partitions.values()]


def test_records_are_replicated_over_tls(files: Files, zookeeper: ZooKeeper) -> None:
    with contextlib.ExitStack() as stack:
        settings = [files.settings(number, f"{zookeeper.secure_connect}/ok") for number in (1, 2, 3)]
        brokers = [stack.enter_context(Broker(**each)) for each in settings]
        ours = client(brokers, files)
        admin = AdminClient(ours)
        admin.create_topics([NewTopic("t", 3, 3)])["t"].result(SECONDS)
        producer = Producer(ours | {"acks": "all"})
        for number in range(COUNT):
            producer.produce("t", str(number), partition=number % 3)
        assert producer.flush(SECONDS) == 0
        brokers[0].kill()
        eventually(lambda: in_sync(admin) == [2, 2, 2], "the others go on", brokers[1].log_text)
        for number in range(COUNT):
            producer.produce("t", str(number), partition=number % 3)
        assert producer.flush(SECONDS) == 0
        brokers[0].start()
        eventually(lambda: in_sync(admin) == [3, 3, 3], "it joins again", brokers[0].log_text)
        consumer = Consumer(ours | {"group.id": "g", "auto.offset.reset": "earliest"})
        consumer.subscribe(["t"])
        found: list[Any] = []
        eventually(lambda: found.extend(consumer.consume(COUNT, 1)) or len(found) >= 2 * COUNT, "all records are read")
        consumer.close()
        assert sorted(int(each.value()) for each in found) == sorted([*range(COUNT)] * 2)


def test_a_broker_with_the_certificate_of_another_host_is_not_talked_to(files: Files, zookeeper: ZooKeeper) -> None:
    connect = f"{zookeeper.secure_connect}/host"
    with Broker(**files.settings(1, connect)) as good, Broker(**files.settings(2, connect, files.elsewhere)) as wrong:
        AdminClient(client([good], files)).create_topics([NewTopic("t", 2, 2)])
        words = "certificate is not accepted: IP address mismatch, certificate is not valid for '127.0.0.1'"
        eventually(lambda: words in good.log_text() + wrong.log_text(), "the log says why", good.log_text)


def test_a_certificate_that_a_broker_cannot_use_is_refused_by_every_broker(files: Files, zookeeper: ZooKeeper) -> None:
    """The controller cannot read the files of the others: each broker looks before it forwards the request."""
    connect = f"{zookeeper.secure_connect}/refused"
    with Broker(**files.settings(1, connect)) as first, Broker(**files.settings(2, connect)) as second:
        admin = AdminClient(client([first, second], files))

        def alter(broker: str, keystore: Path) -> None:
            entry = ConfigEntry(
                "listener.name.ssl.ssl.keystore.location",
                str(keystore),
                incremental_operation=AlterConfigOpType.SET,
            )
            resource = ConfigResource(ConfigResource.Type.BROKER, broker, incremental_configs=[entry])
            admin.incremental_alter_configs([resource])[resource].result(SECONDS)

        other = write_private(files.folder / "same.pem", files.broker.read_bytes())
        for broker in ("1", "2"):
            for wrong in (files.folder / "none.pem", files.elsewhere):
                with pytest.raises(KafkaException, match=r"INVALID_CONFIG.*Listener SSL cannot use these settings"):
                    alter(broker, wrong)
            alter(broker, other)


def test_zookeeper_without_tls_is_told_in_a_line(files: Files, zookeeper: ZooKeeper) -> None:
    settings = files.settings(1, zookeeper.connect) | {"zookeeper.connection.timeout.ms": 3000}
    broker = Broker(files.folder / "plain", **settings)
    with pytest.raises(Exception, match=r"TLS handshake with ZooKeeper at 127\.0\.0\.1 failed"):
        broker.start()
