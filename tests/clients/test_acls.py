"""ACLs as users meet them: librdkafka's clients and the real commands, against a broker with an authorizer."""

import json
import re
import subprocess
import uuid
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
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

from moldau import Consumer as OurConsumer
from moldau.base.errors import WireError
from moldau.security import acls
from support.brokers.processes import StartBroker
from support.clients.cli import runner
from support.kafka import jvm
from support.security.clients import WAITING, Client, fetched, waiting_fetch
from support.security.named_clients import serving

WAIT_S = 20.0
Command = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    directory: Path = tmp_path_factory.mktemp("acls")
    with serving(directory, "admin", "alice", "bob") as found:
        yield found


@pytest.fixture
def topic(addresses: dict[str, str]) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    admin(addresses).create_topics([NewTopic(name, 1, 1)])[name].result(WAIT_S)
    return name


@pytest.fixture
def moldau(addresses: dict[str, str]) -> Command:
    def run(*words: str, user: str = "admin") -> subprocess.CompletedProcess[str]:
        return runner(addresses[user])(*words, "-b", addresses[user])

    return run


def admin(addresses: dict[str, str], user: str = "admin") -> AdminClient:
    return _admin(addresses[user])


@cache  # one that is dropped gives up its requests
def _admin(address: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": address, "log_level": 0})


def acl(kind: ResourceType, name: str, operation: AclOperation, user: str = "User:alice") -> AclBinding:
    return AclBinding(kind, name, ResourcePatternType.LITERAL, user, "*", operation, AclPermissionType.ALLOW)


def give(addresses: dict[str, str], *acls: AclBinding) -> None:
    for future in admin(addresses).create_acls(list(acls)).values():
        future.result(WAIT_S)


def any_of(name: str) -> AclBindingFilter:
    return AclBindingFilter(
        ResourceType.ANY, name, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
    )


def produce(addresses: dict[str, str], topic: str, user: str = "alice") -> str:
    """The name of the error that a record gets, or an empty text."""
    producer = Producer({"bootstrap.servers": addresses[user], "log_level": 0, "message.timeout.ms": 10_000})
    errors: list[KafkaError | None] = []
    producer.produce(topic, b"value", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(WAIT_S)
    (error,) = errors
    return "" if error is None else str(error.name())


def consume(consumer: Consumer) -> str:
    """A record's value, or the name of the error in its place."""
    for _ in range(100):
        message = consumer.poll(0.2)
        if message is not None:
            error = message.error()
            value = message.value()
            return str(error.name()) if error is not None else (value or b"").decode()
    raise AssertionError("neither a record nor an error came")


class TestClients:
    def test_a_producer_needs_write(self, addresses: dict[str, str], topic: str) -> None:
        assert produce(addresses, topic) == "TOPIC_AUTHORIZATION_FAILED"
        give(addresses, acl(ResourceType.TOPIC, topic, AclOperation.WRITE))
        assert produce(addresses, topic) == ""
        assert produce(addresses, topic, "bob") == "TOPIC_AUTHORIZATION_FAILED"

    def test_a_consumer_needs_read_on_topic_and_group_and_loses_it_while_it_runs(
        self, addresses: dict[str, str], topic: str
    ) -> None:
        assert produce(addresses, topic, "admin") == ""
        group = f"readers-{topic}"
        settings = {"group.id": group, "auto.offset.reset": "earliest", "log_level": 0, "fetch.wait.max.ms": 100}
        give(addresses, acl(ResourceType.TOPIC, topic, AclOperation.READ))
        stranger = Consumer({"bootstrap.servers": addresses["alice"], **settings})
        stranger.subscribe([topic])
        assert consume(stranger) == "GROUP_AUTHORIZATION_FAILED"
        stranger.close()
        give(addresses, acl(ResourceType.GROUP, group, AclOperation.READ))
        consumer = Consumer({"bootstrap.servers": addresses["alice"], **settings})
        consumer.subscribe([topic])
        assert consume(consumer) == "value"
        for future in admin(addresses).delete_acls([any_of(topic)]).values():
            assert len(list(future.result(WAIT_S))) == 1
        assert consume(consumer) == "TOPIC_AUTHORIZATION_FAILED"
        consumer.close()

    def test_our_consumer_without_a_group_needs_no_right_to_one(self, addresses: dict[str, str], topic: str) -> None:
        assert produce(addresses, topic, "admin") == ""
        give(addresses, acl(ResourceType.TOPIC, topic, AclOperation.READ))
        with OurConsumer(addresses["alice"], topic, value=str) as consumer:
            message = consumer.poll(WAIT_S)
            assert message is not None
            assert message.value == "value"
            assert consumer.poll(1) is None
            assert set(consumer.lag().values()) == {0}

    def test_a_fetch_that_waits_is_answered_by_the_newest_acls(self, addresses: dict[str, str], topic: str) -> None:
        """Apache Kafka 4.3.1 answers it by those that it came with."""
        give(addresses, acl(ResourceType.TOPIC, topic, AclOperation.READ))
        alice, request = Client(addresses["alice"]), waiting_fetch(topic)
        alice.send(request, WAITING)
        for future in admin(addresses).delete_acls([any_of(topic)]).values():
            future.result(WAIT_S)
        assert produce(addresses, topic, "admin") == ""
        assert fetched(alice.receive(request, WAITING)) == (WireError.TOPIC_AUTHORIZATION_FAILED, False)

    def test_topics_are_hidden_from_those_who_may_not_describe_them(
        self, addresses: dict[str, str], topic: str
    ) -> None:
        assert topic in admin(addresses).list_topics(timeout=WAIT_S).topics
        assert topic not in admin(addresses, "alice").list_topics(timeout=WAIT_S).topics
        give(addresses, acl(ResourceType.TOPIC, topic, AclOperation.DESCRIBE))
        assert topic in admin(addresses, "alice").list_topics(timeout=WAIT_S).topics

    def test_admin_calls_find_and_delete_acls(self, addresses: dict[str, str], topic: str) -> None:
        created = acl(ResourceType.TOPIC, topic, AclOperation.ALTER, "User:*")
        give(addresses, created)
        give(addresses, created)
        assert admin(addresses).describe_acls(any_of(topic)).result(WAIT_S) == [created]
        (refused,) = admin(addresses, "alice").create_acls([created]).values()
        with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
            refused.result(WAIT_S)
        (deleted,) = admin(addresses).delete_acls([any_of(topic)]).values()
        assert list(deleted.result(WAIT_S)) == [created]
        assert admin(addresses).describe_acls(any_of(topic)).result(WAIT_S) == []

    def test_a_wrong_acl_is_refused(self, addresses: dict[str, str]) -> None:
        (future,) = admin(addresses).create_acls([acl(ResourceType.TOPIC, "t", AclOperation.READ, "alice")]).values()
        with pytest.raises(KafkaException, match="no colon"):
            future.result(WAIT_S)


@pytest.mark.skipif(jvm.classpath() is None, reason=jvm.why_missing() or "no reason")
class TestKafkasCommand:
    """kafka-acls on Moldau, and beside `moldau acl`."""

    def test_it_creates_lists_and_deletes(self, addresses: dict[str, str], topic: str) -> None:
        right = ("--allow-principal", "User:alice", "--producer", "--topic", topic)
        kafka_acls(addresses, "--add", *right)
        assert produce(addresses, topic) == ""
        assert "operation=WRITE, permissionType=ALLOW" in kafka_acls(addresses, "--list", "--topic", topic)
        kafka_acls(addresses, "--remove", "--force", *right)
        assert "WRITE" not in kafka_acls(addresses, "--list", "--topic", topic)

    @pytest.mark.parametrize(
        ("resource", "operations"),
        [
            (("--user-principal", "User:carol"), ("CreateTokens", "DescribeTokens")),
            (("--user-principal", "User:team-", "--resource-pattern-type", "prefixed"), ("All",)),
            (("--delegation-token", "*"), ("Describe",)),
        ],
    )
    def test_ours_creates_and_finds_the_same(
        self, moldau: Command, addresses: dict[str, str], resource: tuple[str, ...], operations: tuple[str, ...]
    ) -> None:
        """ACLs of users and delegation tokens."""
        asked = [word for operation in operations for word in ("--operation", operation)]
        right = ("--allow-principal", "User:bob", *asked, *resource)
        created = moldau("acl", "create", *right)
        assert created.returncode == 0, created.stderr
        ours, ours_listed = seen_by_both(moldau, addresses, *resource)
        assert [row["operation"] for row in ours_listed] == list(operations)
        moldau("acl", "delete", "--yes", *resource)
        kafka_acls(addresses, "--add", *right)
        theirs, theirs_listed = seen_by_both(moldau, addresses, *resource)
        assert (theirs, theirs_listed) == (ours, ours_listed)
        kafka_acls(addresses, "--remove", "--force", *right)
        assert seen_by_both(moldau, addresses, *resource) == ([], [])

    @pytest.mark.parametrize(
        ("kind", "words"),
        [
            (acls.ResourceType.TOPIC, ("--topic", "t", "--operation", "ClusterAction")),
            (acls.ResourceType.GROUP, ("--group", "g", "--operation", "ClusterAction")),
            (acls.ResourceType.CLUSTER, ("--cluster", "--operation", "Read")),
            (acls.ResourceType.TRANSACTIONAL_ID, ("--transactional-id", "i", "--operation", "ClusterAction")),
            (acls.ResourceType.USER, ("--user-principal", "User:u", "--operation", "Read")),
            (acls.ResourceType.DELEGATION_TOKEN, ("--delegation-token", "d", "--operation", "Read")),
        ],
    )
    def test_it_knows_the_operations_that_we_know(
        self, addresses: dict[str, str], kind: acls.ResourceType, words: tuple[str, ...]
    ) -> None:
        refused = jvm.run(ACL_COMMAND, *at(addresses), "--add", "--allow-principal", "User:bob", *words)
        assert refused.returncode != 0
        found = re.search(r"only supports operations (.*)", refused.stdout + refused.stderr)
        assert found, refused
        assert set(re.findall(r"\w+", found[1])) == {"ALL", *(each.name for each in acls.SUPPORTED[kind])}


ACL_COMMAND = "org.apache.kafka.tools.AclCommand"


def at(addresses: dict[str, str]) -> tuple[str, str]:
    return "--bootstrap-server", addresses["admin"]


def kafka_acls(addresses: dict[str, str], *words: str) -> str:
    tool = jvm.run(ACL_COMMAND, *at(addresses), *words)
    assert tool.returncode == 0, tool.stderr
    return tool.stdout


def seen_by_both(moldau: Command, addresses: dict[str, str], *resource: str) -> tuple[list[str], list[dict[str, str]]]:
    """The ACLs of a resource as kafka-acls and as `moldau acl` list them."""
    theirs = kafka_acls(addresses, "--list", *resource)
    ours = moldau("acl", "list", *resource, "-o", "json")
    assert ours.returncode == 0, ours.stderr
    return sorted(re.findall(r"resourceType=\w+|\(principal=.*?\)", theirs)), json.loads(ours.stdout)


def test_acls_survive_a_restart(tmp_path: Path) -> None:
    with serving(tmp_path, "admin", "alice") as addresses:
        admin(addresses).create_topics([NewTopic("kept", 1, 1)])["kept"].result(WAIT_S)
        give(addresses, acl(ResourceType.TOPIC, "kept", AclOperation.WRITE))
    with serving(tmp_path, "admin", "alice") as addresses:
        assert produce(addresses, "kept") == ""


def test_without_an_authorizer_there_are_no_acls(start_broker: StartBroker) -> None:
    broker = start_broker()
    client = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    assert client.describe_acls(any_of("t")).result(WAIT_S) == [], "librdkafka drops the error, with Kafka as well"
    (future,) = client.create_acls([acl(ResourceType.TOPIC, "t", AclOperation.READ)]).values()
    with pytest.raises(KafkaException, match="SECURITY_DISABLED"):
        future.result(WAIT_S)


def may_with_tokens(moldau: Command) -> list[str]:
    """What bob may do with all delegation tokens, and for all users."""
    found = moldau("security", "check", "--principal", "User:bob", "-o", "json")
    rows = {row["resource"]: row["may"] for row in json.loads(found.stdout) if "*" in row["names"]}
    return [", ".join(rows[kind]) or "nothing" for kind in ("DelegationToken", "User")]


class TestCommands:
    def test_create_list_and_delete(self, moldau: Command, addresses: dict[str, str], topic: str) -> None:
        created = moldau("acl", "create", "--allow-principal", "User:alice", "--producer", "--topic", topic)
        assert created.returncode == 0, created.stderr
        assert produce(addresses, topic) == ""
        listed = moldau("acl", "list", "--topic", topic, "-o", "json")
        assert sorted(row["operation"] for row in json.loads(listed.stdout)) == ["Create", "Describe", "Write"]
        dry = moldau("acl", "delete", "--topic", topic, "--dry-run", "-o", "json")
        assert len(json.loads(dry.stdout)) == 3
        assert produce(addresses, topic) == ""
        deleted = moldau("acl", "delete", "--topic", topic, "--yes", "-o", "json")
        assert len(json.loads(deleted.stdout)) == 3
        assert produce(addresses, topic) == "TOPIC_AUTHORIZATION_FAILED"

    def test_match_finds_what_applies_to_a_name(self, moldau: Command, topic: str) -> None:
        prefix = topic[:-2]
        words = ("--deny-principal", "User:bob", "--deny-host", "10.0.0.7", "--operation", "all")
        moldau("acl", "create", *words, "--topic", prefix, "--resource-pattern-type", "prefixed")
        found = moldau("acl", "list", "--topic", topic, "--resource-pattern-type", "match", "-o", "json")
        (row,) = json.loads(found.stdout)
        assert row == {
            "resource": "Topic",
            "name": prefix,
            "pattern": "Prefixed",
            "principal": "User:bob",
            "host": "10.0.0.7",
            "operation": "All",
            "permission": "Deny",
        }
        assert "No ACLs match" in moldau("acl", "list", "--topic", topic).stderr

    def test_check_shows_what_a_user_may_do_from_a_host(self, moldau: Command, topic: str) -> None:
        moldau("acl", "create", "--allow-principal", "User:bob", "--allow-host", "10.0.0.8", "--consumer", "-t", topic)

        def may(host: str) -> list[str]:
            found = moldau("security", "check", "--principal", "User:bob", "--host", host, "-o", "json")
            rows = json.loads(found.stdout)
            return next(row["may"] for row in rows if row["resource"] == "Topic" and topic in row["names"])

        assert may("10.0.0.8") == ["Read", "Describe"]
        assert may("10.0.0.9") == []
        assert may_with_tokens(moldau) == ["nothing", "nothing"]
        moldau(
            "acl", "create", "--allow-principal", "User:bob", "--operation", "DescribeTokens", "--user-principal", "*"
        )
        assert may_with_tokens(moldau) == ["nothing", "DescribeTokens"]
        everything = moldau("security", "check", "--principal", "User:admin")
        assert "User:admin is a super user" in everything.stderr
        assert "ClusterAction" in everything.stdout

    def test_reading_without_a_group_needs_no_right_on_one(
        self, moldau: Command, addresses: dict[str, str], topic: str
    ) -> None:
        assert produce(addresses, topic, "admin") == ""
        refused = moldau("consume", topic, user="alice")
        assert refused.returncode == 1
        assert "TOPIC_AUTHORIZATION_FAILED" in refused.stderr
        give(addresses, acl(ResourceType.TOPIC, topic, AclOperation.READ))
        found = moldau("consume", topic, user="alice")
        assert (found.returncode, found.stdout) == (0, "value\n"), found.stderr

    @pytest.mark.parametrize(
        ("words", "problem"),
        [
            (("acl", "list", "--principal", "bob"), "has no type. Write User:bob"),
            (("acl", "list", "--principal", ":bob"), "has no type. Write User:bob"),
            (("acl", "list", "--principal", "User:"), "has no name. Write User:NAME"),
            (
                ("acl", "create", "--deny-principal", "User:a", "--deny-host", "h", "-t", "t", "--operation", "Read"),
                "--deny-host 'h' is not an address",
            ),
            (
                (
                    *("acl", "create", "--allow-principal", "User:a", "--operation", "Read", "-t", "*"),
                    *("--resource-pattern-type", "prefixed"),
                ),
                "'*' is no prefix",
            ),
            (("security", "check", "--host", "localhost"), "is not an address"),
            (("acl", "list", "--user-principal", "bob"), "has no type"),
            (("acl", "delete", "--delegation-token", ""), "is empty"),
            (
                ("acl", "create", "--allow-principal", "User:a", "--user-principal", "User:b", "--operation", "Read"),
                "is no operation on a User",
            ),
            (("acl", "create", "--topic", "t", "--operation", "Read"), "no principal was given"),
            (("acl", "create", "--allow-principal", "User:a", "--operation", "Read"), "no resource was given"),
            (("acl", "create", "--allow-principal", "User:a", "--topic", "t"), "no operation was given"),
            (("acl", "create", "--allow-principal", "a", "--topic", "t", "--operation", "Read"), "has no type"),
            (("acl", "create", "--allow-principal", "User:a", "--topic", "", "--operation", "Read"), "is empty"),
            (("acl", "create", "--allow-principal", "User:a", "--topic", "t", "--operation", "Fly"), "is none of"),
            (
                ("acl", "create", "--allow-principal", "User:a", "--topic", "t", "--operation", "ClusterAction"),
                "is no operation on a Topic",
            ),
            (
                ("acl", "create", "--allow-principal", "User:a", "--cluster", "--producer"),
                "does not go with --producer",
            ),
            (("acl", "create", "--deny-host", "10.0.0.1", "--topic", "t", "--operation", "Read"), "--deny-principal"),
            (
                (
                    "acl",
                    "create",
                    "--allow-principal",
                    "User:a",
                    "-t",
                    "t",
                    "--producer",
                    "--resource-pattern-type",
                    "any",
                ),
                "is for filters",
            ),
            (("acl", "delete"), "would delete all ACLs"),
            (("acl", "list", "--resource-pattern-type", "regex"), "is none of"),
            (("security", "check", "--principal", "bob"), "has no type"),
        ],
    )
    def test_a_mistake_is_explained(self, moldau: Command, words: tuple[str, ...], problem: str) -> None:
        answered = moldau(*words)
        assert (answered.returncode, answered.stdout) == (2, "")
        assert problem in answered.stderr

    def test_one_without_rights_is_told_so(self, moldau: Command) -> None:
        answered = moldau("acl", "list", user="alice")
        assert answered.returncode == 1
        assert "CLUSTER_AUTHORIZATION_FAILED" in answered.stderr
