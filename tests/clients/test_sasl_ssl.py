"""Logins over TLS: SASL_SSL listeners with each mechanism, by several libraries; certificates and passwords count."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.helpers import create_ssl_context
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient

from moldau.testing import Broker
from moldau.tools.certs.authority import Authority, write_private
from support.clients.sasl import PLAIN_USERS, SCRAM_USERS, SCRAMS, SECONDS, add_scram_users, jaas

LOGINS = [("PLAIN", "alice", PLAIN_USERS["alice"]), *((each, "bob", SCRAM_USERS["bob"]) for each in SCRAMS)]


class Secured:
    def __init__(self, folder: Path) -> None:
        authority = Authority()
        self.ca = write_private(folder / "ca.pem", authority.pem)
        self.stranger = write_private(folder / "stranger.pem", Authority().pem)
        users = {f"user_{name}": password for name, password in PLAIN_USERS.items()}
        keystore = write_private(folder / "broker.pem", authority.broker(["localhost", "127.0.0.1"]).keystore_pem())
        settings: dict[str, object] = {
            "listeners": "SASL_SSL://127.0.0.1:0",
            "inter.broker.listener.name": "SASL_SSL",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": ",".join(("PLAIN", *SCRAMS)),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas(
                {"username": "alice", "password": PLAIN_USERS["alice"], **users}
            ),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self.ca,
        }
        self.broker = Broker(folder / "data", **settings).start()

    def librdkafka(self, mechanism: str, user: str, password: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.broker.bootstrap_servers,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.ca),
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    secured = Secured(tmp_path_factory.mktemp("sasl-ssl"))
    try:
        add_scram_users(
            secured.broker.bootstrap_servers,
            **{"security.protocol": "SASL_SSL", "ssl.ca.location": str(secured.ca)},
        )
        yield secured
    finally:
        secured.broker.stop()


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_librdkafka(secured: Secured, mechanism: str, user: str, password: str) -> None:
    admin = AdminClient(secured.librdkafka(mechanism, user, password))
    assert len(admin.list_topics(timeout=SECONDS).brokers) == 1


@pytest.mark.parametrize(("mechanism", "user", "password"), LOGINS)
def test_aiokafka_produces(secured: Secured, mechanism: str, user: str, password: str) -> None:
    async def produce() -> int:
        async with AIOKafkaProducer(
            bootstrap_servers=secured.broker.bootstrap_servers,
            security_protocol="SASL_SSL",
            ssl_context=create_ssl_context(cafile=str(secured.ca)),
            sasl_mechanism=mechanism,
            sasl_plain_username=user,
            sasl_plain_password=password,
        ) as producer:
            return int((await producer.send_and_wait(f"t-{mechanism.lower()}", b"x" * 100_000)).offset)

    assert asyncio.run(asyncio.wait_for(produce(), SECONDS)) == 0


def test_kafka_python(secured: Secured) -> None:
    admin = KafkaAdminClient(
        bootstrap_servers=secured.broker.bootstrap_servers,
        security_protocol="SASL_SSL",
        ssl_cafile=str(secured.ca),
        sasl_mechanism="SCRAM-SHA-512",
        sasl_plain_username="bob",
        sasl_plain_password=SCRAM_USERS["bob"],
    )
    try:
        assert len(admin.describe_cluster()["brokers"]) == 1
    finally:
        admin.close()


def test_a_wrong_password_and_a_foreign_authority_are_refused(secured: Secured) -> None:
    wrong = secured.librdkafka("PLAIN", "alice", "not it")
    with pytest.raises(KafkaException):
        AdminClient(wrong).list_topics(timeout=3)
    foreign = {**secured.librdkafka("PLAIN", "alice", PLAIN_USERS["alice"]), "ssl.ca.location": str(secured.stranger)}
    with pytest.raises(KafkaException):
        AdminClient(foreign).list_topics(timeout=3)
    assert AdminClient(secured.librdkafka(*LOGINS[0])).list_topics(timeout=SECONDS).brokers
