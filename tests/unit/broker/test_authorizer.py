"""The authorizer follows the image's documents, remembers what sessions were allowed, and tells of denials."""

import logging
from dataclasses import replace
from uuid import UUID

import pytest

from moldau.base.session import BROKER, Principal, Session
from moldau.broker.security import authorizer as module
from moldau.broker.security.acl_documents import created, deleted, found, path_of, pattern_of
from moldau.broker.security.authorizer import Authorizer
from moldau.broker.security.denials import REMEMBERED_LINES, REPEAT_S, DenialLog, Denials
from moldau.metadata.changes import DocumentsChanged
from moldau.metadata.documents import changed, is_document
from moldau.metadata.image import ClusterImage, PartitionState, Topic
from moldau.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    to_text,
)

ALICE = Principal("User", "alice")
ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
READ = AclBinding(ORDERS, AclEntry("User:alice", "*", Operation.READ, Permission.ALLOW))
TOPIC_ID = UUID("00000000-0000-4000-8000-000000000001")


class World:
    """An authorizer and the image that it follows."""

    def __init__(self) -> None:
        topic = Topic("orders", TOPIC_ID, (PartitionState(0, (1,), (1,), 1),))
        self.image = ClusterImage(topics={"orders": topic}, topics_by_id={TOPIC_ID: topic})
        self.authorizer = Authorizer(["User:admin"], lambda: self.image, Denials())

    def apply(self, change: DocumentsChanged | None) -> None:
        assert change is not None
        self.image = replace(self.image, documents=changed(self.image.documents, change.documents))

    def create(self, *bindings: AclBinding) -> None:
        self.apply(created(self.image.documents, bindings))


def session(principal: Principal = ALICE, peer: str = "10.0.0.1:5000") -> Session:
    return Session("PLAINTEXT", peer, principal=principal)


@pytest.mark.parametrize(
    ("pattern", "path"),
    [
        (ORDERS, "/kafka-acl/Topic/orders"),
        (ResourcePattern(ResourceType.TOPIC, "*"), "/kafka-acl/Topic/*"),
        (ResourcePattern(ResourceType.CLUSTER, "kafka-cluster"), "/kafka-acl/Cluster/kafka-cluster"),
        (
            ResourcePattern(ResourceType.TRANSACTIONAL_ID, "a/b", PatternType.PREFIXED),
            "/kafka-acl-extended/prefixed/TransactionalId/a%2Fb",
        ),
    ],
)
def test_paths_are_those_of_kafka_on_zookeeper(pattern: ResourcePattern, path: str) -> None:
    assert path_of(pattern) == path
    assert pattern_of(path) == pattern
    assert is_document(path)


@pytest.mark.parametrize("path", ["/config/users/alice", "/kafka-acl/Planet/earth"])
def test_other_documents_are_no_acls(path: str) -> None:
    assert pattern_of(path) is None


def test_acls_are_created_once_and_deleted_by_filters() -> None:
    world = World()
    write = AclBinding(ORDERS, READ.entry._replace(operation=Operation.WRITE))
    world.create(READ, write, READ)
    assert created(world.image.documents, [READ]) is None
    assert set(found(world.image.documents, AclFilter())) == {READ, write}
    change, matching = deleted(world.image.documents, [AclFilter(operation=Operation.READ), AclFilter(name="gone")])
    assert matching == [{READ}, set()]
    world.apply(change)
    assert list(found(world.image.documents, AclFilter())) == [write]
    change, _ = deleted(world.image.documents, [AclFilter()])
    world.apply(change)
    assert world.image.documents == {}


def test_a_session_follows_the_acls() -> None:
    world, alice = World(), session()
    assert not world.authorizer.rights(alice).reads[b"orders"]
    world.create(READ)
    rights = world.authorizer.rights(alice)
    assert rights.reads[b"orders"]
    assert not rights.writes[b"orders"]
    assert world.authorizer.rights(alice) is rights, "nothing has changed"
    assert dict(rights.reads) == {b"orders": True}
    world.image = replace(world.image, documents={**world.image.documents, "/config/users/alice": "{}"})
    assert world.authorizer.rights(alice) is rights, "no ACL has changed"
    change, _ = deleted(world.image.documents, [AclFilter()])
    world.apply(change)
    assert not world.authorizer.rights(alice).reads[b"orders"]


def test_another_principal_of_a_connection_has_other_rights() -> None:
    world, connection = World(), session()
    world.create(READ)
    assert world.authorizer.rights(connection).reads[b"orders"]
    connection.principal = Principal("User", "bob")
    assert not world.authorizer.rights(connection).reads[b"orders"]


def test_ids_stand_for_names_and_are_not_mistaken_for_them() -> None:
    world, alice = World(), session()
    anything = ResourcePattern(ResourceType.TOPIC, "*")
    world.create(AclBinding(anything, READ.entry), AclBinding(ORDERS, READ.entry._replace(permission=Permission.DENY)))
    rights = world.authorizer.rights(alice)
    assert rights.reads[TOPIC_ID.bytes], "as a name, these bytes are a topic that nobody denies"
    assert not rights.reads_by_id[TOPIC_ID.bytes]
    assert rights.reads_by_id[UUID(int=9).bytes], "of no topic: the response says that it is unknown"
    assert not dict(rights.reads_by_id)


def test_a_session_remembers_a_bounded_number_of_topics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED_TOPICS", 3)
    rights = World().authorizer.rights(session(Principal("User", "admin")))
    for number in range(10):
        assert rights.reads[b"topic-%d" % number]
        assert len(rights.reads) <= 3


@pytest.mark.parametrize(
    ("peer", "host"), [("10.0.0.1:5000", "10.0.0.1"), ("[::1]:5000", "::1"), ("[fe80::1]:1", "fe80::1")]
)
def test_the_host_is_the_address_of_the_peer(peer: str, host: str) -> None:
    world = World()
    world.create(AclBinding(ORDERS, READ.entry._replace(host=host)))
    assert world.authorizer.rights(session(peer=peer)).reads[b"orders"]
    assert not world.authorizer.rights(session(peer="10.9.9.9:1")).reads[b"orders"]


def test_brokers_may_do_everything_themselves() -> None:
    rights = World().authorizer.rights(session(BROKER))
    assert rights.may(Operation.CREATE, ResourceType.TOPIC, "new", "CreateTopics")


def test_acls_that_cannot_be_read_deny_everything(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.create(AclBinding(ResourcePattern(ResourceType.TOPIC, "*"), READ.entry))
    world.apply(DocumentsChanged({path_of(ORDERS): "not JSON"}))
    with caplog.at_level(logging.ERROR):
        assert not world.authorizer.rights(session()).reads[b"orders"]
    assert "/kafka-acl/Topic/orders cannot be read" in caplog.text
    assert world.authorizer.rights(session()).reads[b"others"]


def test_denials_are_counted_and_logged_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    world, alice = World(), session()
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            assert not world.authorizer.rights(alice).writes[b"orders"]
            assert not world.authorizer.rights(alice).may(
                Operation.DESCRIBE, ResourceType.TOPIC, "orders", "Metadata", log=False
            )
    assert world.authorizer.denials.count == 3
    assert caplog.messages == [
        "Principal = User:alice is Denied operation = WRITE from host = 10.0.0.1 "
        "on resource = Topic:LITERAL:orders for request = Produce"
    ]


def test_a_name_cannot_write_lines_of_its_own_into_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        assert not World().authorizer.rights(session()).reads[b"x\nPrincipal = User:admin" + b"y" * 1000]
    (line,) = caplog.messages
    assert "\n" not in line
    assert "Topic:LITERAL:x\\nPrincipal" in line
    assert len(line) < 500


def test_a_repeated_line_comes_again_after_a_while(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    log = DenialLog(lambda: now)
    with caplog.at_level(logging.INFO):
        for _ in range(5):
            log.write("denied")
        now = REPEAT_S
        log.write("denied")
        assert caplog.messages == ["denied", "denied (4 more times before)"]
        for number in range(REMEMBERED_LINES + 10):
            log.write(f"line {number}")
    assert len(log._lines) == REMEMBERED_LINES


def test_documents_hold_what_kafka_writes() -> None:
    world = World()
    world.apply(DocumentsChanged({"/kafka-acl/Topic/orders": to_text([READ.entry])}))
    assert world.authorizer.rights(session()).reads[b"orders"]
