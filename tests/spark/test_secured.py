"""Our `format("moldau")` on a broker that wants TLS and a login, or a certificate: options of Spark's connector."""

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import NewTopic

from support.clients.sasl import SCRAM_USERS, as_admin, jaas
from support.security.logins import SASL_PLAINTEXT, SASL_SSL, SSL, Secured

pytest.importorskip("pyspark", reason="needs PySpark: pip install '.[spark]'")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    yield made
    made.broker.stop()


@pytest.fixture
def created(secured: Secured, topic: str) -> str:
    admin = as_admin(secured.at(SASL_PLAINTEXT))
    admin.create_topics([NewTopic(topic, 3, 1)])[topic].result(30)
    return topic


def options(secured: Secured, protocol: str, **more: str) -> dict[str, str]:
    return {
        "kafka.bootstrap.servers": secured.at(protocol),
        "kafka.security.protocol": protocol,
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": str(secured.ca),
        **{f"kafka.{name.replace('_', '.')}": value for name, value in more.items()},
    }


def login(secured: Secured, password: str) -> dict[str, str]:
    module = jaas({"username": "bob", "password": password}, "scram.ScramLoginModule")
    return options(secured, SASL_SSL, sasl_mechanism="SCRAM-SHA-512", sasl_jaas_config=module)


def written(spark: Any, given: dict[str, str], topic: str) -> None:
    rows = spark.range(100).selectExpr("string(id) as value")
    rows.write.format("moldau").options(**given).option("topic", topic).mode("append").save()


def values(spark: Any, given: dict[str, str], topic: str) -> list[int]:
    rows = spark.read.format("moldau").options(**given).option("subscribe", topic).load().collect()
    return sorted(int(row.value) for row in rows)


def test_a_login_over_tls(spark: Any, secured: Secured, created: str) -> None:
    given = login(secured, SCRAM_USERS["bob"])
    written(spark, given, created)
    assert values(spark, given, created) == [*range(100)]


def test_a_wrong_password_is_told_in_a_sentence(spark: Any, secured: Secured, created: str) -> None:
    for use in (written, values):
        with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as caught:
            use(spark, login(secured, "guessed-wrong"), created)
        assert "guessed-wrong" not in str(caught.value)


def test_a_certificate_of_the_client(spark: Any, secured: Secured, created: str) -> None:
    given = options(secured, SSL, ssl_keystore_type="PEM", ssl_keystore_location=str(secured.alice))
    written(spark, given, created)
    assert values(spark, given, created) == [*range(100)]
