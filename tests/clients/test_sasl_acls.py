"""Users with passwords and ACLs together: what librdkafka's users may do, and who sees whose delegation tokens."""

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from moldau.client.admin.cluster import Cluster, open_cluster
from moldau.client.admin.target import Target
from moldau.client.admin.tokens import create_token, list_tokens
from moldau.testing import Broker
from moldau.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from moldau.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from support.clients.sasl import (
    ACLS_AND_TOKENS,
    PLAIN_USERS,
    SCRAM_USERS,
    SECONDS,
    add_scram_users,
    as_admin,
    client_settings,
    sasl_broker,
    set_password,
)
from support.eventually import eventually


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder: Path = tmp_path_factory.mktemp("acls")
    with sasl_broker(folder / "data", **ACLS_AND_TOKENS) as started:
        add_scram_users(started.bootstrap_servers)
        yield started


def settings_of(broker: Broker, user: str) -> dict[str, object]:
    if user in PLAIN_USERS:
        return client_settings(broker.bootstrap_servers, "PLAIN", user, PLAIN_USERS[user])
    return client_settings(broker.bootstrap_servers, "SCRAM-SHA-256", user, SCRAM_USERS[user])


def allow(broker: Broker, user: str, operation: AclOperation, kind: ResourceType, name: str) -> None:
    rule = AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
    admin = as_admin(broker.bootstrap_servers)  # kept, since librdkafka ends what a collected client does
    for done in admin.create_acls([rule]).values():
        done.result(SECONDS)


def error_of(work: object) -> KafkaError:
    with pytest.raises(KafkaException) as refused:
        work.result(SECONDS)  # type: ignore[attr-defined]
    error: KafkaError = refused.value.args[0]
    return error


def cluster_of(broker: Broker, user: str) -> AbstractContextManager[Cluster]:
    given = {name: str(value) for name, value in settings_of(broker, user).items() if name != "log_level"}
    return open_cluster(Target(given.pop("bootstrap.servers"), given))


def test_a_user_may_do_what_an_acl_allows(broker: Broker) -> None:
    admin = AdminClient(settings_of(broker, "bob"))
    refused = error_of(admin.create_topics([NewTopic("orders", 1)])["orders"])
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(broker, "bob", AclOperation.CREATE, ResourceType.TOPIC, "orders")
    admin.create_topics([NewTopic("orders", 1)])["orders"].result(SECONDS)
    outcomes: list[KafkaError | None] = []
    producer = Producer({**settings_of(broker, "bob"), "message.timeout.ms": 4000})
    producer.produce("orders", b"x", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(SECONDS)
    assert outcomes[0] is not None, "Create is not Write"
    allow(broker, "bob", AclOperation.WRITE, ResourceType.TOPIC, "orders")

    def delivered() -> bool:
        outcomes.clear()
        producer = Producer({**settings_of(broker, "bob"), "message.timeout.ms": 4000})
        producer.produce("orders", b"x", on_delivery=lambda error, _: outcomes.append(error))
        producer.flush(SECONDS)
        return outcomes == [None]

    eventually(delivered, SECONDS)


def test_only_some_may_manage_users_and_quotas(broker: Broker) -> None:
    admin = AdminClient(settings_of(broker, "alice"))
    with pytest.raises(KafkaException) as refused:
        set_password(admin, "mallory", "let me in")
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED
    allowed = as_admin(broker.bootstrap_servers)
    assert "mallory" not in allowed.describe_user_scram_credentials().result(SECONDS)
    with cluster_of(broker, "alice") as alice:  # librdkafka 2.16 crashes on this refusal
        answer = alice.ask(DescribeUserScramCredentialsRequest(users=None), DescribeUserScramCredentialsResponse)
        quotas = alice.ask(DescribeClientQuotasRequest(components=(), strict=False), DescribeClientQuotasResponse)
    assert (answer.error_code, answer.results) == (KafkaError.CLUSTER_AUTHORIZATION_FAILED, ())
    assert (quotas.error_code, quotas.entries) == (KafkaError.CLUSTER_AUTHORIZATION_FAILED, None)


def test_tokens_are_seen_by_their_owner_and_by_those_with_a_right(broker: Broker) -> None:
    with cluster_of(broker, "alice") as alice:
        made = create_token(alice, [], None)
        assert [token.id for token in list_tokens(alice)] == [made.id]
    with cluster_of(broker, "bob") as bob:
        assert list_tokens(bob) == []
    with cluster_of(broker, "admin") as admin:
        assert [token.id for token in list_tokens(admin)] == [made.id], "a super user sees all"
