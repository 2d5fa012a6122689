"""ACLs in a cluster: every broker takes them, all know them, and brokers still replicate and forward."""

import contextlib
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from moldau.testing import Broker, Cluster
from moldau.testing.zookeeper import EnsembleMissing, ZooKeeper
from moldau.tools.certs.authority import Authority, write_private
from support.brokers.processes import free_port
from support.clients import confluent
from support.eventually import eventually

SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",  # clients and brokers: no listener authenticates them
}
WAIT_S = 30.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, **SETTINGS) as made:
        yield made


def test_brokers_replicate(cluster: Cluster) -> None:
    name = f"topic-{uuid.uuid4().hex[:8]}"
    admin = confluent.admin(cluster.bootstrap_servers)
    admin.create_topics([NewTopic(name, 1, 3, config={"min.insync.replicas": "3"})])[name].result(WAIT_S)
    confluent.write(cluster.bootstrap_servers, name, [{"value": b"copied", "partition": 0}], acks="all")
    assert [record.value for record in confluent.read(cluster.bootstrap_servers, name)] == [b"copied"]


def test_an_acl_of_any_broker_is_known_to_all(cluster: Cluster) -> None:
    """Two of the brokers forward the request to the controller."""
    for number, bootstrap in enumerate(cluster.bootstrap_servers.split(",")):
        acl = AclBinding(
            ResourceType.TOPIC,
            f"topic-{number}",
            ResourcePatternType.LITERAL,
            "User:alice",
            "*",
            AclOperation.READ,
            AclPermissionType.ALLOW,
        )
        admin = confluent.admin(bootstrap)
        (created,) = admin.create_acls([acl]).values()
        created.result(WAIT_S)
        wanted = AclBindingFilter(
            ResourceType.ANY,
            f"topic-{number}",
            ResourcePatternType.ANY,
            None,
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        for other in cluster.bootstrap_servers.split(","):
            reader = confluent.admin(other)
            cluster.wait_for(lambda: reader.describe_acls(wanted).result(WAIT_S) == [acl], "that it is known")  # noqa: B023


# ── brokers and clients with certificates of their own ──


class Certified:
    """Two brokers whose clients are known by their certificates: `admin` is the only super user."""

    def __init__(self, folder: Path, connect: str, stack: contextlib.ExitStack) -> None:
        authority = Authority()
        self.ca = write_private(folder / "ca.pem", authority.pem)
        self.certificates = {
            name: write_private(folder / f"{name}.pem", authority.client(name).keystore_pem())
            for name in ("admin", "alice")
        }
        broker = write_private(
            folder / "broker.pem", authority.broker(["broker", "localhost", "127.0.0.1"]).keystore_pem()
        )
        common: dict[str, Any] = {
            "security.inter.broker.protocol": "SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": broker,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
            "ssl.client.auth": "required",
            "ssl.principal.mapping.rules": "RULE:^CN=([^,]*).*$/$1/",
            "zookeeper.connect": connect,
            "default.replication.factor": 2,
            "min.insync.replicas": 2,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:admin",
        }
        self.brokers = [
            stack.enter_context(Broker(**common, **{"node.id": number, "listeners": f"SSL://127.0.0.1:{free_port()}"}))
            for number in (1, 2)
        ]

    def client(self, name: str, *brokers: Broker) -> dict[str, Any]:
        certificate = str(self.certificates[name])
        return {
            "bootstrap.servers": ",".join(each.bootstrap_servers for each in brokers or self.brokers),
            "security.protocol": "ssl",
            "ssl.ca.location": str(self.ca),
            "ssl.certificate.location": certificate,
            "ssl.key.location": certificate,
            "log_level": 0,
        }


def allow(kind: ResourceType, name: str, user: str, operation: AclOperation) -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, user, "*", operation, AclPermissionType.ALLOW)


@pytest.fixture
def certified(tmp_path: Path) -> Iterator[Certified]:
    try:
        with ZooKeeper() as server, contextlib.ExitStack() as stack:
            yield Certified(tmp_path, server.connect, stack)
    except EnsembleMissing as missing:
        pytest.skip(str(missing))


def error_of(settings: dict[str, Any], topic: str) -> str:
    producer = Producer(settings | {"acks": "all", "message.timeout.ms": 20_000})
    errors: list[Any] = []
    producer.produce(topic, b"value", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_S)
    return "" if errors[0] is None else str(errors[0].name())


def test_brokers_need_cluster_action_and_clients_their_own_rights(certified: Certified) -> None:
    admin = AdminClient(certified.client("admin"))
    alice = certified.client("alice")

    def give(acl: AclBinding) -> None:
        (created,) = admin.create_acls([acl]).values()
        created.result(WAIT_S)

    admin.create_topics([NewTopic("orders", 1, 2)])["orders"].result(WAIT_S)
    denied = "Principal = User:broker is Denied operation = CLUSTER_ACTION"
    eventually(lambda: any(denied in each.log_text() for each in certified.brokers), "the leader refuses its follower")
    give(allow(ResourceType.BROKER, "kafka-cluster", "User:broker", AclOperation.CLUSTER_ACTION))
    assert error_of(certified.client("admin"), "orders") == ""
    assert error_of(alice, "orders") == "TOPIC_AUTHORIZATION_FAILED"
    give(allow(ResourceType.TOPIC, "orders", "User:alice", AclOperation.WRITE))
    eventually(lambda: error_of(alice, "orders") == "", "the leader knows the ACL")
    for broker in certified.brokers:  # one of them forwards the request
        client = AdminClient(certified.client("alice", broker))
        (created,) = client.create_topics([NewTopic("mine", 1, 2)]).values()
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            created.result(WAIT_S)
