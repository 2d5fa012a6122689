"""The rolling switch of docs/security.md under load: from PLAINTEXT to SASL_SSL, and no record lost, twice or late.

Late is what the producer's delivery.timeout.ms says: a record that no broker acknowledges in this time is an error.
`make test` does the middle, where brokers of both kinds talk to each other; MOLDAU_FULL=1 (`make soak`) does all of it.
"""

import os
import threading
import time
from collections import Counter
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import uuid4

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.workloads.errors import is_hard
from moldau.testing import Broker, ZooKeeper
from moldau.tools.certs.authority import Authority, write_private
from support.brokers.processes import free_port
from support.clients import confluent
from support.clients.sasl import jaas, set_password
from support.eventually import eventually

Client = dict[str, str | int | bool]

TOPIC, PARTITIONS, GROUP = "orders", 3, "readers"
NUMBERS = (1, 2, 3)
SECONDS = 60
DELIVERY_TIMEOUT_MS = 30_000
PAUSE_S = 0.02
FULL = bool(os.environ.get("MOLDAU_FULL"))
MECHANISM = "SCRAM-SHA-256"
PASSWORDS = {"broker": "of-the-brokers", "app": "of-the-app"}
PLAIN, SECURE = "PLAINTEXT", "SASL_SSL"


class Step(NamedTuple):
    listeners: tuple[str, ...]
    between_brokers: str = PLAIN


BEFORE = Step((PLAIN,))
ADD_LISTENER = Step((PLAIN, SECURE))
BETWEEN_BROKERS = Step((PLAIN, SECURE), SECURE)
REMOVE_LISTENER = Step((SECURE,), SECURE)


class Switched:
    """Three brokers whose listeners change from one start to the next."""

    def __init__(self, folder: Path, connect: str) -> None:
        authority = Authority()
        self.ca = write_private(folder / "ca.pem", authority.pem)
        self._keystore = write_private(folder / "broker.pem", authority.broker(["127.0.0.1"]).keystore_pem())
        self._folder, self._connect = folder, connect
        self._ports = {name: {number: free_port() for number in NUMBERS} for name in (PLAIN, SECURE)}
        self.brokers = {number: self._broker(number, BEFORE if FULL else ADD_LISTENER) for number in NUMBERS}

    def _broker(self, number: int, step: Step) -> Broker:
        settings: dict[str, object] = {
            "node.id": number,
            "zookeeper.connect": self._connect,
            "zookeeper.session.timeout.ms": 6000,
            "listeners": ",".join(f"{name}://127.0.0.1:{self._ports[name][number]}" for name in step.listeners),
            "security.inter.broker.protocol": step.between_brokers,
            "default.replication.factor": 3,
            "min.insync.replicas": 2,
            "offsets.topic.replication.factor": 3,
            "offsets.topic.num.partitions": 3,
        }
        if SECURE in step.listeners:
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": self._keystore,
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": self.ca,
                "sasl.enabled.mechanisms": MECHANISM,
                "sasl.mechanism.inter.broker.protocol": MECHANISM,
                "sasl.jaas.config": jaas(
                    {"username": "broker", "password": PASSWORDS["broker"]}, "scram.ScramLoginModule"
                ),
            }
        return Broker(self._folder / f"broker-{number}", **settings)

    def client(self, listener: str) -> Client:
        addresses = ",".join(f"127.0.0.1:{port}" for port in self._ports[listener].values())
        settings: Client = {"bootstrap.servers": addresses, "security.protocol": listener, "log_level": 0}
        if listener == SECURE:
            login: Client = {"sasl.mechanism": MECHANISM, "sasl.username": "app", "sasl.password": PASSWORDS["app"]}
            settings |= {"ssl.ca.location": str(self.ca), **login}
        return settings

    def roll(self, admin: AdminClient, step: Step) -> None:
        """Restart each broker with other listeners; the next one waits until all replicas are in sync."""
        for number in NUMBERS:
            self.brokers[number].stop()
            self.brokers[number] = self._broker(number, step).start()
            self.await_in_sync(admin)

    def await_in_sync(self, admin: AdminClient) -> None:
        def in_sync() -> bool:
            found = confluent.metadata(admin)
            topics = () if found is None else found.topics.values()
            return bool(topics) and all(len(each.isrs) == 3 for topic in topics for each in topic.partitions.values())

        eventually(in_sync, "every replica is in sync", self.logs)

    def logs(self) -> str:
        return "\n".join(each.log_text()[-3000:] for each in self.brokers.values())

    def end(self) -> None:
        for broker in self.brokers.values():
            broker.kill()


class Writer:
    """An idempotent producer that goes on in a thread of its own. Each record says when it was sent."""

    def __init__(self, name: str, client: Client) -> None:
        own = {"enable.idempotence": True, "linger.ms": 2, "delivery.timeout.ms": DELIVERY_TIMEOUT_MS}
        self._name, self._producer = name, Producer(client | own)
        self.delivered: list[str] = []
        self.errors: list[KafkaError] = []
        self.slowest_s = 0.0
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        sent = 0
        while not self._ending.is_set():
            told = partial(self._told, f"{self._name} {sent}", time.monotonic())
            self._producer.produce(TOPIC, f"{self._name} {sent}", partition=sent % PARTITIONS, on_delivery=told)
            self._producer.poll(PAUSE_S)
            sent += 1
        self._producer.flush(2 * DELIVERY_TIMEOUT_MS / 1000)

    def _told(self, value: str, since: float, error: KafkaError | None, _: Message) -> None:
        self.slowest_s = max(self.slowest_s, time.monotonic() - since)
        if error is None:
            self.delivered.append(value)
        else:
            self.errors.append(error)

    def await_more(self) -> None:
        wanted = len(self.delivered) + 100
        eventually(lambda: len(self.delivered) >= wanted, f"{self._name} goes on", lambda: self.errors)

    def stop(self) -> None:
        self._ending.set()
        self._thread.join()
        assert self.errors == []
        assert len(self._producer) == 0


class Reader:
    """A consumer that goes on in a thread of its own, from the offsets that the one before has committed."""

    def __init__(self, client: Client) -> None:
        own = {"group.id": GROUP, "enable.auto.commit": False, "auto.offset.reset": "error"}
        self._consumer = Consumer(client | own)
        self.read: list[str] = []
        self.errors: list[KafkaError] = []
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._begin()
        self._thread.start()

    def _begin(self) -> None:
        known = self._consumer.committed([TopicPartition(TOPIC, each) for each in range(PARTITIONS)], SECONDS)
        self._consumer.assign([TopicPartition(TOPIC, each.partition, max(each.offset, 0)) for each in known])

    def _run(self) -> None:
        while not self._ending.is_set():
            self._take(0.1)

    def _take(self, seconds: float) -> None:
        for message in self._consumer.consume(500, seconds):
            error = message.error()
            if error is None:
                self.read.append((message.value() or b"").decode())
            elif is_hard(error):
                self.errors.append(error)

    def stop(self) -> None:
        """Commit the positions."""
        self._ending.set()
        self._thread.join()
        positions = self._consumer.position([TopicPartition(TOPIC, each) for each in range(PARTITIONS)])
        self._consumer.commit(offsets=positions, asynchronous=False)
        self._consumer.close()
        assert self.errors == []

    def stop_after(self, count: int) -> None:
        eventually(lambda: len(self.read) >= count, "everything is read", lambda: f"{len(self.read)} of {count}")
        self.stop()


def test_a_running_cluster_switches_to_sasl_ssl(tmp_path: Path, zookeeper: ZooKeeper) -> None:
    cluster = Switched(tmp_path, f"{zookeeper.connect}/{uuid4().hex}")
    try:
        for broker in cluster.brokers.values():
            broker.start()
        switch(cluster)
    finally:
        cluster.end()


def switch(cluster: Switched) -> None:
    admin = AdminClient(cluster.client(PLAIN))
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(SECONDS)
    for user, password in PASSWORDS.items():
        set_password(admin, user, password, MECHANISM)
    plain, first = Writer("plain", cluster.client(PLAIN)), Reader(cluster.client(PLAIN))
    plain.await_more()
    if FULL:
        cluster.roll(admin, ADD_LISTENER)
    cluster.roll(admin, BETWEEN_BROKERS)
    plain.await_more()
    secure = Writer("secure", cluster.client(SECURE))
    secure.await_more()
    plain.stop()
    first.stop()
    second = Reader(cluster.client(SECURE))
    if FULL:
        cluster.roll(AdminClient(cluster.client(SECURE)), REMOVE_LISTENER)
    secure.await_more()
    secure.stop()
    sent = plain.delivered + secure.delivered
    second.stop_after(len(sent) - len(first.read))
    assert Counter(first.read + second.read) == Counter(sent)
    assert max(Counter(sent).values()) == 1
    print(f"{len(sent)} records, the slowest after {max(plain.slowest_s, secure.slowest_s):.1f} s")
    refused = "Controlled shutdown was refused"
    assert refused not in cluster.logs(), "brokers with the old and the new settings take each other's requests"
