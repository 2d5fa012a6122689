"""Two organisations on one broker: each works under its own names, and nothing of the other ever appears.

The requests of the ACL matrix are sent by a member of acme, alone and beside globex, for its own names and for guessed
ones. Every answer must be the same as if globex were not there.
"""

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from cryptography import x509
from cryptography.x509.oid import NameOID
from joserfc.jwk import KeySet

from moldau.base.errors import WireError
from moldau.broker.table import APIS
from moldau.client.admin import organisations
from moldau.client.admin.cluster import Cluster, open_cluster
from moldau.client.admin.errors import Refused
from moldau.client.admin.target import Target
from moldau.security.organisations import Limits, Role
from moldau.testing import Broker
from moldau.tools.certs.authority import Authority, write_private
from moldau.wire.codec import encode
from moldau.wire.declare import NAME_PATTERN, Name
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.describe_organisations import (
    DescribedOrganisation,
    DescribeOrganisationsRequest,
    DescribeOrganisationsResponse,
)
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from moldau.wire.names import renamed
from support.brokers.processes import free_port
from support.clients.cli import Run, fail, runner, succeed
from support.clients.sasl import PLAIN_USERS, SECONDS, as_admin, client_settings, sasl_broker, set_password
from support.eventually import eventually
from support.security.clients import WAITING, Client, fetched, waiting_fetch
from support.security.logins import KEY, token
from support.security.matrix import told
from support.security.matrix_requests import GROUP, ID, TOPIC, requests

ALICE, BOB, READER = "acme/alice", "globex/bob", "acme/rita"
PASSWORD = "secret"
SECRET = "topsecret"
BLANK = UUID(int=0xACE)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    directory: Path = tmp_path_factory.mktemp("organisations")
    settings: dict[str, object] = {
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "delegation.token.secret.key": "a key of this cluster",
    }
    with sasl_broker(directory, **settings) as started:
        admin = as_admin(started.bootstrap_servers)
        for user in (ALICE, BOB, READER):
            set_password(admin, user, PASSWORD)
        with as_cluster(started, "admin", PLAIN_USERS["admin"]) as cluster:
            for name in ("acme", "globex"):
                organisations.create(cluster, name, Limits())
                organisations.change(cluster, name, organisations.with_product("shop", Limits(), new=True))
            organisations.change(cluster, "acme", organisations.with_roles("alice", [("*", Role.ADMIN)]))
            organisations.change(cluster, "acme", organisations.with_roles("rita", [("shop", Role.READER)]))
            organisations.change(cluster, "globex", organisations.with_roles("bob", [("*", Role.ADMIN)]))
        yield started


def as_cluster(broker: Broker, user: str, password: str = PASSWORD) -> Any:
    given = {name: str(value) for name, value in settings_of(broker, user, password).items() if name != "log_level"}
    return open_cluster(Target(given.pop("bootstrap.servers"), given))


def settings_of(broker: Broker, user: str, password: str = PASSWORD) -> dict[str, Any]:
    return client_settings(broker.bootstrap_servers, "PLAIN", user, password)


class Renamed:
    """The matrix with names of a product, or with guessed ones."""

    def __init__(self, prefix: str, topic_id: UUID, names: str = "") -> None:
        self._prefix, self._topic_id, self._names = prefix, topic_id, names

    def name(self, kind: Name, name: str, /) -> str:
        return f"{self._prefix}{self._names or name}" if name and kind is not NAME_PATTERN else name

    def topic_id(self, topic_id: UUID, /) -> UUID:
        return self._topic_id if topic_id == BLANK else topic_id

    def text(self, text: str, /) -> str:
        return text


def prepare(client: Client, topic: str, group: str, transactional_id: str) -> UUID:
    """A topic, a group with offsets and a transactional id; the id of the topic."""
    spec = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, assignments=(), configs=())
    client.ask(CreateTopicsRequest(topics=(spec,)), 7)
    committed = (OffsetCommitPartition(partition_index=0, committed_offset=1),)
    for request, version in (
        (FindCoordinatorRequest(key_type=0, coordinator_keys=(group,)), 4),
        (FindCoordinatorRequest(key_type=1, coordinator_keys=(transactional_id,)), 4),
        (OffsetCommitRequest(group_id=group, topics=(OffsetCommitTopic(name=topic, partitions=committed),)), 8),
        (InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000), 5),
    ):
        eventually(lambda: fine(client.ask(request, version)), "the coordinators serve")  # noqa: B023
    answered = client.ask(MetadataRequest(topics=(MetadataRequestTopic(name=topic),)), 12)
    assert isinstance(answered, MetadataResponse)
    return answered.topics[0].topic_id


def fine(answered: object) -> bool:
    return all(each.endswith("error_code=0") for each in told(answered) if "error_code" in each)


Answers = dict[str, tuple[list[str], bytes]]


def answers(client: Client, renaming: Renamed) -> Answers:
    """What each request is told, and the bytes of its response."""
    found: Answers = {}
    for name, version, request in requests(BLANK):
        answered = client.ask(renamed(request, renaming), version)
        found[name] = told(answered), encode(answered, version)
    return found


@pytest.fixture(scope="module")
def matrix(broker: Broker) -> dict[str, Answers]:
    """Alice's answers before and after globex has things, and those to guessed names that are there and are not."""
    alice = Client(broker.bootstrap_servers, (ALICE, PASSWORD))
    bob = Client(broker.bootstrap_servers, (BOB, PASSWORD))
    own_id = prepare(alice, f"shop.{TOPIC}", f"shop.{GROUP}", f"shop.{ID}")
    own = Renamed("shop.", own_id)
    answers(alice, own)  # the first time it makes a group and records
    before = answers(alice, own)
    prepare(bob, f"shop.{TOPIC}", f"shop.{GROUP}", f"shop.{ID}")
    foreign_id = prepare(bob, f"shop.{SECRET}", f"shop.{SECRET}", f"shop.{SECRET}")
    assert foreign_id != own_id
    token = bob.ask(CreateDelegationTokenRequest(renewers=(), max_lifetime_ms=-1), 3)
    assert fine(token), token
    return {
        "before": before,
        "after": answers(alice, own),
        "foreign, by its name": answers(alice, Renamed("shop.", foreign_id, SECRET)),
        "nobody's, by its name": answers(alice, Renamed("shop.", UUID(int=77), SECRET)),
        "foreign, by the cluster's name": answers(alice, Renamed("globex.shop.", foreign_id, SECRET)),
        "nobody's, by the cluster's name": answers(alice, Renamed("nobody.shop.", UUID(int=77), SECRET)),
    }


NAMES = [name for name, _, _ in requests(BLANK)]


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_is_the_same_beside_another_organisation(matrix: dict[str, Answers], name: str) -> None:
    assert matrix["after"][name][0] == matrix["before"][name][0]
    answered = matrix["after"][name][1].replace(ALICE.encode(), b"")  # its own login
    for secret in (b"globex", SECRET.encode(), b"acme"):
        assert secret not in answered


def without_guesses(found: list[str]) -> list[str]:
    """A guessed transactional id becomes one of acme's own, and is listed from then on."""
    return [each for each in found if not (SECRET in each and "=" not in each)]


@pytest.mark.parametrize("name", NAMES)
def test_what_others_have_is_as_unknown_as_what_nobody_has(matrix: dict[str, Answers], name: str) -> None:
    by_name, nobodys_name = matrix["foreign, by its name"][name], matrix["nobody's, by its name"][name]
    assert without_guesses(by_name[0]) == without_guesses(nobodys_name[0])
    assert b"globex" not in by_name[1]
    guessed, unknown = matrix["foreign, by the cluster's name"][name], matrix["nobody's, by the cluster's name"][name]
    assert without_guesses([each.replace("globex.", "nobody.") for each in guessed[0]]) == without_guesses(unknown[0])
    assert b"acme" not in guessed[1].replace(ALICE.encode(), b"")


def test_every_api_of_clients_is_in_the_matrix() -> None:
    before_the_login = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}
    names = {api.messages.name for api in APIS if not api.messages.between_brokers and not api.messages.own}
    assert {name.partition(",")[0].split()[0] for name in NAMES} == names - before_the_login


# ── clients ──


def topic_of(broker: Broker, user: str = ALICE, **config: str) -> str:
    name = f"shop.{uuid.uuid4().hex[:8]}"
    admin = AdminClient(settings_of(broker, user))  # kept, since librdkafka ends what a collected client does
    admin.create_topics([NewTopic(name, 1, 1, config=config)])[name].result(SECONDS)
    return name


def write(broker: Broker, topic: str, user: str = ALICE, **settings: object) -> object:
    """The outcome of one record: None, or its error."""
    outcome: list[object] = []
    producer = Producer({**settings_of(broker, user), **settings})
    if "transactional.id" in settings:
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
    producer.produce(topic, b"value", on_delivery=lambda error, message: outcome.append(error))
    if "transactional.id" in settings:
        producer.commit_transaction(SECONDS)
    producer.flush(SECONDS)
    return outcome[0]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_client_works_unchanged(broker: Broker, protocol: str) -> None:
    topic = topic_of(broker)
    assert write(broker, topic) is None
    assert write(broker, topic, **{"transactional.id": "mine"}) is None
    group = f"g-{uuid.uuid4().hex[:8]}"
    settings = {"group.id": group, "auto.offset.reset": "earliest", "group.protocol": protocol, "client.id": "app"}
    consumer = Consumer({**settings_of(broker, ALICE), **settings})
    consumer.subscribe([topic])
    found = [consumer.poll(SECONDS) for _ in range(2)]
    assert [(each.topic(), each.value()) for each in found if each is not None] == [(topic, b"value")] * 2
    consumer.commit(asynchronous=False)
    admin = AdminClient(settings_of(broker, ALICE))
    (described,) = [each.result(SECONDS) for each in admin.describe_consumer_groups([group]).values()]
    assert (described.group_id, [member.client_id for member in described.members]) == (group, ["app"])
    consumer.close()
    assert group in {each.group_id for each in admin.list_consumer_groups().result(SECONDS).valid}
    of_cluster = as_admin(broker.bootstrap_servers)
    assert f"acme.{topic}" in of_cluster.list_topics(timeout=SECONDS).topics
    assert f"acme.{group}" in {each.group_id for each in of_cluster.list_consumer_groups().result(SECONDS).valid}


def test_a_regular_expression_finds_own_topics_only(broker: Broker) -> None:
    topic, foreign = topic_of(broker), topic_of(broker, BOB)
    assert write(broker, topic) is None
    assert write(broker, foreign, BOB) is None
    settings = {"group.id": f"g-{topic}", "auto.offset.reset": "earliest", "group.protocol": "consumer"}
    consumer = Consumer({**settings_of(broker, ALICE), **settings})
    consumer.subscribe([f"^shop\\.({topic.removeprefix('shop.')}|{foreign.removeprefix('shop.')})"])
    first = eventually(lambda: consumer.poll(1.0), "a record comes")
    assert first.topic() == topic
    assert consumer.poll(1.0) is None
    assert {each.topic for each in consumer.assignment()} == {topic}
    consumer.close()


def test_a_pattern_lists_own_transactions_only(broker: Broker) -> None:
    topic = topic_of(broker)
    assert write(broker, topic, **{"transactional.id": "listed"}) is None
    foreign = topic_of(broker, BOB)
    assert write(broker, foreign, BOB, **{"transactional.id": "listed-too"}) is None
    alice = Client(broker.bootstrap_servers, (ALICE, PASSWORD))
    answered = alice.ask(ListTransactionsRequest(transactional_id_pattern="^listed.*"), 2)
    assert isinstance(answered, ListTransactionsResponse)
    assert [each.transactional_id for each in answered.transaction_states] == ["listed"]


def test_a_reader_reads(broker: Broker) -> None:
    topic = topic_of(broker)
    assert write(broker, topic) is None
    refused = write(broker, topic, READER, **{"enable.idempotence": False})
    assert "TOPIC_AUTHORIZATION_FAILED" in str(refused)
    consumer = Consumer({**settings_of(broker, READER), "group.id": "rita"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.poll(SECONDS)
    assert found is not None
    assert found.value() == b"value"
    consumer.close()
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        topic_of(broker, READER)


def test_a_fetch_that_waits_is_answered_by_the_newest_roles(broker: Broker, cluster: Cluster) -> None:
    topic = topic_of(broker)
    set_password(as_admin(broker.bootstrap_servers), "acme/erin", PASSWORD)
    organisations.change(cluster, "acme", organisations.with_roles("erin", [("shop", Role.READER)]))
    erin, request = Client(broker.bootstrap_servers, ("acme/erin", PASSWORD)), waiting_fetch(topic)
    erin.send(request, WAITING)
    organisations.change(cluster, "acme", organisations.without_roles("erin", None))
    assert write(broker, topic) is None
    assert fetched(erin.receive(request, WAITING)) == (WireError.TOPIC_AUTHORIZATION_FAILED, False)


def described(admin: AdminClient, kind: ConfigResource.Type, name: str) -> Any:
    (config,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    return config.result(SECONDS)


def test_a_member_cannot_administer_the_cluster(broker: Broker) -> None:
    admin = AdminClient(settings_of(broker, ALICE))
    with pytest.raises(KafkaException, match="CLUSTER_AUTHORIZATION_FAILED"):
        described(admin, ConfigResource.Type.BROKER, "1")
    with as_cluster(broker, ALICE) as cluster, pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"):
        organisations.create(cluster, "umbrella", Limits())
    with as_cluster(broker, READER) as cluster, pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"):
        organisations.list_organisations(cluster)


def test_members_by_certificate_and_by_claim(tmp_path: Path) -> None:
    """The rule for subjects is that of docs/security.md."""
    authority, keys = Authority(), tmp_path / "jwks.json"
    ca = write_private(tmp_path / "ca.pem", authority.pem)
    keystore = write_private(tmp_path / "broker.pem", authority.broker(["127.0.0.1"]).keystore_pem())
    subject = x509.Name(
        [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Acme"), x509.NameAttribute(NameOID.COMMON_NAME, "Alice")]
    )
    own = write_private(tmp_path / "alice.pem", authority.client(subject=subject).keystore_pem())
    keys.write_text(json.dumps(KeySet([KEY]).as_dict(private=False)))
    listeners = {name: free_port() for name in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT")}
    settings: dict[str, object] = {
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in listeners.items()),
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.organisation.claim.name": "org",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": keystore,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": ca,
        "ssl.client.auth": "required",
        "ssl.principal.mapping.rules": r"RULE:^CN=([^,]*),O=([^,]*)$/$2\/$1/L,DEFAULT",
    }
    by_certificate = {
        "bootstrap.servers": f"127.0.0.1:{listeners['SSL']}",
        "security.protocol": "SSL",
        "ssl.ca.location": str(ca),
        **dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), str(own)),
    }
    by_claim = {
        "bootstrap.servers": f"127.0.0.1:{listeners['SASL_PLAINTEXT']}",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token(org="acme", sub="bob"), time.time() + 600),
    }
    with Broker(tmp_path / "data", **settings):
        with open_cluster(Target(f"127.0.0.1:{listeners['PLAINTEXT']}")) as cluster:
            organisations.create(cluster, "acme", Limits())
            organisations.change(cluster, "acme", organisations.with_product("shop", Limits(), new=True))
            organisations.change(cluster, "acme", organisations.with_roles("alice", [("shop", Role.ADMIN)]))
            organisations.change(cluster, "acme", organisations.with_roles("bob", [("shop", Role.READER)]))
        alice, bob = AdminClient(by_certificate), AdminClient(by_claim)
        alice.create_topics([NewTopic("shop.orders", 1, 1)])["shop.orders"].result(SECONDS)
        bob.poll(0)
        assert set(bob.list_topics(timeout=SECONDS).topics) == {"shop.orders"}
        with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            bob.delete_topics(["shop.orders"])["shop.orders"].result(SECONDS)


# ── limits ──


@pytest.fixture
def cluster(broker: Broker) -> Iterator[Cluster]:
    with as_cluster(broker, "admin", PLAIN_USERS["admin"]) as opened:
        yield opened


@pytest.fixture
def limited(cluster: Cluster) -> Iterator[Any]:
    """Sets limits of acme/shop, which end with the test."""

    def limit(**limits: int) -> None:
        organisations.change(cluster, "acme", organisations.with_product("shop", Limits(**limits), new=False))

    yield limit
    limit()


def test_a_topic_beyond_a_limit_is_refused_with_the_limit(broker: Broker, limited: Any) -> None:
    topic = topic_of(broker)
    limited(partitions=1, retention_ms=86_400_000)
    with pytest.raises(KafkaException, match=r"POLICY_VIOLATION.*may have 1 partitions"):
        topic_of(broker)
    admin = AdminClient(settings_of(broker, ALICE))
    with pytest.raises(KafkaException, match=r"may have 1 partitions"):
        admin.create_partitions([NewPartitions(topic, 5)])[topic].result(SECONDS)
    limited(retention_ms=86_400_000)
    with pytest.raises(KafkaException, match="POLICY_VIOLATION"):
        topic_of(broker, **{"retention.ms": "-1"})
    own = topic_of(broker)
    kept = described(admin, ConfigResource.Type.TOPIC, own)
    assert kept["retention.ms"].value == "86400000"
    with pytest.raises(KafkaException, match="one of its products"):
        admin.create_topics([NewTopic("unknown.topic", 1, 1)])["unknown.topic"].result(SECONDS)


def test_a_full_product_takes_no_more(broker: Broker, limited: Any) -> None:
    topic = topic_of(broker)
    assert write(broker, topic) is None
    limited(bytes_stored=1)
    refused = eventually(lambda: write(broker, topic), "the limit holds")
    assert "POLICY_VIOLATION" in str(refused)


def test_a_rate_is_kept_by_throttling(broker: Broker, limited: Any) -> None:
    topic = topic_of(broker)
    limited(bytes_in=50_000)
    throttled: list[float] = []
    producer = Producer(
        {
            **settings_of(broker, ALICE),
            "linger.ms": 0,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    for _ in range(30):
        producer.produce(topic, b"x" * 10_000)
        producer.poll(0.01)
    producer.flush(SECONDS)
    assert max(throttled) > 0


def test_usage_is_counted(broker: Broker, cluster: Cluster) -> None:
    def used() -> organisations.Usage:
        return next(each for each in organisations.usage(cluster, "acme")[0] if each.product == "shop")

    topic = topic_of(broker)
    before = used()
    assert write(broker, topic) is None
    consumer = Consumer({**settings_of(broker, ALICE), "group.id": "counted"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(SECONDS) is not None
    connections = organisations.usage(cluster, "acme")[1]
    assert connections >= 1
    consumer.close()
    after = used()
    assert after.bytes_in > before.bytes_in
    assert after.bytes_out > before.bytes_out
    assert eventually(lambda: used().bytes_stored > before.bytes_stored, "the stored bytes are counted")


# ── what an administrator sees of its own organisation ──


def test_an_administrator_sees_limits_and_usage_of_its_own_organisation(broker: Broker, limited: Any) -> None:
    limited(partitions=1_000)
    topic = topic_of(broker)
    assert write(broker, topic) is None
    with as_cluster(broker, ALICE) as cluster:
        (own,) = organisations.list_organisations(cluster)
        assert (own.name, own.products, own.members) == ("acme", {"shop": Limits(partitions=1_000)}, {})
        rows, connections = organisations.usage(cluster, "acme")
        foreign = topic_of(broker, BOB)
        assert write(broker, foreign, BOB) is None
        later, _ = organisations.usage(cluster, "acme")
    shop = next(each for each in rows if each.product == "shop")
    assert shop.bytes_in > 0
    assert [each.bytes_in for each in later] == [each.bytes_in for each in rows]
    assert connections >= 1


def test_another_organisation_is_as_unknown_as_one_that_does_not_exist(broker: Broker) -> None:
    alice = Client(broker.bootstrap_servers, (ALICE, PASSWORD))

    def described(*names: str) -> tuple[DescribedOrganisation, ...]:
        answered = alice.ask(DescribeOrganisationsRequest(names=names or None), 0)
        assert isinstance(answered, DescribeOrganisationsResponse)
        return answered.organisations

    assert [(each.name, each.error_code) for each in described()] == [("acme", WireError.NONE)]
    for name in ("globex", "nobody"):
        own, other = described("acme", name)
        assert own.definition is not None
        assert other == DescribedOrganisation(
            error_code=WireError.RESOURCE_NOT_FOUND, name=name, definition=None, connections=0, usage=()
        )


@pytest.mark.parametrize("roles", [{"*": Role.WRITER}, {"shop": Role.ADMIN}, {"*": Role.READER, "shop": Role.ADMIN}])
def test_only_an_administrator_of_all_products_sees_it(
    broker: Broker, cluster: Cluster, roles: dict[str, Role]
) -> None:
    """Also on a connection that is open when the role changes."""
    set_password(as_admin(broker.bootstrap_servers), "acme/carl", PASSWORD)
    organisations.change(cluster, "acme", organisations.with_roles("carl", [("*", Role.ADMIN)]))
    with as_cluster(broker, "acme/carl") as carls:
        assert organisations.organisation(carls, "acme").name == "acme"
        organisations.change(cluster, "acme", organisations.without_roles("carl", None))
        organisations.change(cluster, "acme", organisations.with_roles("carl", roles.items()))
        for ask in (organisations.organisation, organisations.usage):
            with pytest.raises(Refused, match="CLUSTER_AUTHORIZATION_FAILED"):
                ask(carls, "acme")


# ── commands ──


def as_user(broker: Broker, user: str, password: str = PASSWORD) -> Run:
    """The command line with a user's login."""
    run = runner(broker.bootstrap_servers)
    login = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": user}
    options = [f"{name}={value}" for name, value in {**login, "sasl.password": password}.items()]
    given = [word for option in options for word in ("-X", option)]
    return lambda *arguments, stdin="": run(*arguments, *given, stdin=stdin)


@pytest.fixture
def moldau(broker: Broker) -> Run:
    return as_user(broker, "admin", PLAIN_USERS["admin"])


def test_usage_without_a_name_is_that_of_the_own_organisation(broker: Broker, moldau: Run) -> None:
    assert json.loads(succeed(as_user(broker, ALICE)("org", "usage", "-o", "json")))["organisation"] == "acme"
    assert "acme" in succeed(as_user(broker, ALICE)("org", "describe", "acme"))
    fail(as_user(broker, ALICE)("org", "usage", "globex"), 1, "there is no organisation 'globex'")
    fail(as_user(broker, READER)("org", "usage"), 1, "CLUSTER_AUTHORIZATION_FAILED")
    fail(moldau("org", "usage"), 2, "no organisation was named", "acme", "globex")


def test_the_life_of_an_organisation(broker: Broker, moldau: Run) -> None:
    succeed(moldau("org", "create", "initech", "--connections-max", "100"))
    fail(moldau("org", "create", "initech"), 2, "exists")
    limits = ("--quota-in", "10MB/s", "--retention-max", "30d", "--partitions-max", "200")
    assert "initech/tps" in succeed(moldau("product", "create", "initech/tps", *limits))
    assert "reader of all products" in succeed(moldau("user", "create", "initech/peter", stdin="pw\n"))
    assert "admin of tps" in succeed(moldau("org", "grant", "initech/peter", "--role", "tps:admin"))
    shown = json.loads(succeed(moldau("org", "describe", "initech", "-o", "json")))
    assert shown == {
        "organisation": "initech",
        "limits": {"connections": 100},
        "products": {"tps": {"partitions": 200, "retention_ms": 2_592_000_000, "bytes_in": 10_000_000}},
        "users": {"peter": {"all": "reader", "tps": "admin"}},
    }
    admin = AdminClient(settings_of(broker, "initech/peter", "pw"))
    admin.create_topics([NewTopic("tps.reports", 1, 1)])["tps.reports"].result(SECONDS)
    fail(moldau("product", "delete", "initech/tps", "--yes"), 1, "it has topics", "POLICY_VIOLATION")
    fail(moldau("org", "delete", "initech", "--yes"), 1, "1 topic and 1 user")
    assert "tps" in succeed(moldau("org", "usage", "initech"))
    admin.delete_topics(["tps.reports"])["tps.reports"].result(SECONDS)
    succeed(moldau("product", "alter", "initech/tps", "--partitions-max", "none"))
    assert "retention-max 30d, quota-in 10MB/s" in succeed(moldau("product", "list", "initech"))
    succeed(moldau("product", "delete", "initech/tps", "--yes"))
    succeed(moldau("org", "revoke", "initech/peter"))
    succeed(moldau("user", "delete", "initech/peter", "--yes"))
    assert "Would delete" in succeed(moldau("org", "delete", "initech", "--dry-run"))
    succeed(moldau("org", "delete", "initech", "--yes"))
    assert "initech" not in succeed(moldau("org", "list"))


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["org", "create", "Acme"], 1, "lower-case letters"),
        (["org", "create", "x", "--partitions-max", "many"], 2, "--partitions-max"),
        (["org", "describe", "nobody"], 1, "there is no organisation 'nobody'"),
        (["org", "create", "acme"], 2, "organisation 'acme' exists"),
        (["org", "describe", "nobody"], 1, "moldau org list"),
        (["org", "revoke", "acme/nobody"], 1, "acme/nobody has no role"),
        (["org", "revoke", "acme/alice", "--product", "lab"], 1, "acme/alice has no role in 'lab'"),
        (["org", "grant", "acme/alice", "--role", ":reader"], 2, "[PRODUCT:]ROLE"),
        (["org", "alter", "acme"], 2, "no limit was given"),
        (["org", "grant", "acme/alice"], 2, "no role was given"),
        (["org", "grant", "acme/alice", "--role", "boss"], 2, "[PRODUCT:]ROLE"),
        (["org", "grant", "acme/alice", "--role", "lab:reader"], 1, "has no product 'lab'"),
        (["org", "grant", "alice", "--role", "reader"], 2, "ORGANISATION/USER"),
        (["product", "create", "shop"], 2, "ORGANISATION/PRODUCT"),
        (["product", "create", "acme/shop"], 2, "exists"),
        (["product", "create", "acme/a.b"], 1, "lower-case letters"),
        (["product", "alter", "acme/lab", "--bytes-max", "1GB"], 1, "has no product 'lab'"),
        (["user", "create", "plain", "--role", "reader"], 2, "users of organisations"),
        (["user", "create", "nobody/alice"], 1, "there is no organisation 'nobody'"),
    ],
)
def test_mistakes(moldau: Run, arguments: list[str], code: int, words: str) -> None:
    fail(moldau(*arguments, stdin="pw\n"), code, words)
