"""ACLs in a cluster: every broker takes them, all know them, and brokers still replicate and forward."""

import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from moldau.testing import Cluster
from support.clients import confluent

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
