"""A cluster whose brokers log in at each other, with sessions that end all the time; users that all brokers know."""

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from kafka.protocol.metadata import MetadataRequest

from moldau.client.admin import organisations
from moldau.client.admin.cluster import open_cluster
from moldau.client.admin.target import Target
from moldau.client.admin.tokens import create_token
from moldau.client.admin.users import create_first_user
from moldau.security.organisations import Limits, Role
from moldau.security.sasl_client import Sasl
from moldau.testing import Cluster
from support.clients.raw import RawClient
from support.clients.sasl import client_settings, jaas, log_in, set_password

SECONDS = 30
BROKER_LOGIN = {"username": "broker", "password": "broker-secret", "user_broker": "broker-secret"}
SASL = {
    "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.brokers.plain.sasl.jaas.config": jaas(BROKER_LOGIN),
    "connections.max.reauth.ms": 2000,
    "delegation.token.secret.key": "of-the-cluster",
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, **SASL) as made:
        yield made


def test_brokers_replicate_and_forward_over_sasl(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("copied", 6, 3)])["copied"].result(SECONDS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "linger.ms": 1})
    written: list[object] = []
    until = time.monotonic() + 6  # three sessions
    while time.monotonic() < until:
        producer.produce("copied", b"x", on_delivery=lambda error, message: written.append(error))
        producer.poll(0.005)
    assert producer.flush(SECONDS) == 0
    assert len(written) > 100
    assert not [error for error in written if error is not None]
    cluster.wait_for(lambda: all(len(cluster.in_sync("copied", part)) == 3 for part in range(6)), "the ISR to be whole")


def test_a_killed_broker_comes_back(cluster: Cluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    admin.create_topics([NewTopic("survives", 3, 3)])["survives"].result(SECONDS)
    cluster.kill(2)
    cluster.wait_for(lambda: all(cluster.leader_of("survives", part) in (1, 3) for part in range(3)), "new leaders")
    cluster.start(2)
    cluster.wait_for(lambda: all(2 in cluster.in_sync("survives", part) for part in range(3)), "broker 2 to be in sync")


def inner(cluster: Cluster, number: int) -> str:
    """The address of a broker's listener for brokers; clients are not told."""
    listeners = cluster.broker(number)._settings["listeners"].split(",")
    return next(each.partition("://")[2] for each in listeners if each.startswith("BROKERS"))


def test_a_stranger_learns_nothing_on_the_listener_of_the_brokers(cluster: Cluster) -> None:
    with RawClient(inner(cluster, 1)) as client:
        client.send(MetadataRequest(topics=None), 1)
        assert client.is_closed()


def test_a_token_of_any_broker_is_good_at_every_broker(cluster: Cluster) -> None:
    """The controller creates it for the user of the broker that forwards the request."""
    for number in (1, 2, 3):
        login = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "PLAIN"}
        login |= {"sasl.username": "broker", "sasl.password": BROKER_LOGIN["password"]}
        with open_cluster(Target(inner(cluster, number), login)) as asked:
            token = create_token(asked, (), None)
        assert token.owner == "User:broker"
        for other in (1, 2, 3):
            sasl = Sasl("SCRAM-SHA-256", token.id, token.hmac, by_token=True)

            def known(sasl: Sasl = sasl, other: int = other) -> bool:
                with RawClient(inner(cluster, other)) as client:
                    return log_in(client, sasl).error == 0

            cluster.wait_for(known, "the token to be known")


def test_every_broker_knows_a_new_user(cluster: Cluster) -> None:
    """The change goes to the controller, whichever broker is asked."""
    for number in (1, 2, 3):
        admin = AdminClient({"bootstrap.servers": cluster.broker(number).bootstrap_servers})
        set_password(admin, f"user-{number}", "secret")
    for number in (1, 2, 3):
        admin = AdminClient({"bootstrap.servers": cluster.broker(number).bootstrap_servers})

        def users(admin: AdminClient = admin) -> set[str]:
            return set(admin.describe_user_scram_credentials().result(SECONDS))

        cluster.wait_for(lambda: {"user-1", "user-2", "user-3"} <= users(), "the users to be known")


def test_passwords_are_not_changed_while_brokers_run(cluster: Cluster) -> None:
    """ZooKeeper would hold them as they are. Which broker is asked makes no difference."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
    entry = ConfigEntry(
        "listener.name.brokers.plain.sasl.jaas.config",
        jaas({**BROKER_LOGIN, "password": "hushed"}),
        incremental_operation=AlterConfigOpType.SET,
    )
    resource = ConfigResource(ConfigResource.Type.BROKER, "2", incremental_configs=[entry])
    (done,) = admin.incremental_alter_configs([resource]).values()
    with pytest.raises(KafkaException, match="ZooKeeper would hold them unencrypted") as refused:
        done.result(SECONDS)
    assert "hushed" not in str(refused.value)


def test_members_of_an_organisation_work_on_every_broker(cluster: Cluster) -> None:
    """Creation is forwarded with the member's names, and what all brokers store counts against its limit."""
    set_password(AdminClient({"bootstrap.servers": cluster.bootstrap_servers}), "acme/alice", "secret")
    with open_cluster(Target(cluster.bootstrap_servers)) as asked:
        organisations.create(asked, "acme", Limits())
        organisations.change(asked, "acme", organisations.with_product("shop", Limits(), new=True))
        organisations.change(asked, "acme", organisations.with_roles("alice", [("shop", Role.ADMIN)]))
    for number in (1, 2, 3):
        admin = AdminClient(as_alice(cluster, number))
        topic = f"shop.t{number}"

        def created(admin: AdminClient = admin, topic: str = topic) -> bool:
            """Once this broker knows the organisation."""
            try:
                admin.create_topics([NewTopic(topic, 3, 3)])[topic].result(SECONDS)
            except KafkaException as problem:
                return problem.args[0].name() == "TOPIC_ALREADY_EXISTS"
            return True

        cluster.wait_for(created, "the topic to be created")
        cluster.wait_for(lambda: topic in admin.list_topics(timeout=SECONDS).topics, "the topic")  # noqa: B023
    names = AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=SECONDS).topics
    assert {"acme.shop.t1", "acme.shop.t2", "acme.shop.t3"} <= names.keys()
    producer = Producer({**as_alice(cluster, 1), "acks": "all"})
    outcomes: list[KafkaError | None] = []

    def told(error: KafkaError | None, _: object) -> None:
        outcomes.append(error)

    for partition in range(3):
        producer.produce("shop.t1", b"x" * 1000, partition=partition, on_delivery=told)
    producer.flush(SECONDS)
    assert outcomes == [None, None, None], "each on another broker"
    with open_cluster(Target(cluster.bootstrap_servers)) as asked:

        def usage() -> organisations.Usage:
            (found,), _ = organisations.usage(asked, "acme")
            return found

        assert 3000 < usage().bytes_in < 6000
        cluster.wait_for(lambda: usage().bytes_stored >= usage().bytes_in, "all brokers to tell what they store")
        limit = Limits(bytes_stored=usage().bytes_stored - 1)  # more than one broker stores
        organisations.change(asked, "acme", organisations.with_product("shop", limit, new=False))

    def refused() -> bool:
        outcomes.clear()
        producer.produce("shop.t1", b"x", partition=0, on_delivery=told)
        producer.flush(SECONDS)
        return outcomes[0] is not None and outcomes[0].name() == "POLICY_VIOLATION"

    cluster.wait_for(refused, "the limit to hold")


def as_alice(cluster: Cluster, number: int) -> dict[str, object]:
    return client_settings(inner(cluster, number), "PLAIN", "acme/alice", "secret")


def test_brokers_with_a_wrong_password_say_so_and_copy_nothing() -> None:
    wrong = jaas({**BROKER_LOGIN, "password": "not-the-one"})
    settings = SASL | {"listener.name.brokers.plain.sasl.jaas.config": wrong}
    with Cluster(brokers=2, **settings) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        admin.create_topics([NewTopic("alone", 2, replica_assignment=[[1, 2], [2, 1]])])

        def logs() -> str:
            return made.log_text(1) + made.log_text(2)

        made.wait_for(lambda: "this broker's login failed" in logs(), "the failed login to be logged")
        assert "not-the-one" not in logs()


def test_brokers_with_scram_start_with_a_user_made_before(tmp_path: Path) -> None:
    for number in (1, 2):
        create_first_user(tmp_path / f"broker-{number}", "broker", "hush", ["SCRAM-SHA-256"], 4096)
    settings = {
        "listener.security.protocol.map": "CLIENTS:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
        "sasl.jaas.config": jaas({"username": "broker", "password": "hush"}, "scram.ScramLoginModule"),
    }
    with Cluster(brokers=2, directory=tmp_path, **settings) as made:
        admin = AdminClient({"bootstrap.servers": made.bootstrap_servers})
        admin.create_topics([NewTopic("both", 2, 2)])["both"].result(SECONDS)
        producer = Producer({"bootstrap.servers": made.bootstrap_servers, "acks": "all"})
        producer.produce("both", b"x")
        assert producer.flush(SECONDS) == 0
        made.wait_for(lambda: all(len(made.in_sync("both", part)) == 2 for part in range(2)), "both to be in sync")
