"""Every API with every right: the errors are those of Apache Kafka with its StandardAuthorizer.

Kafka's answers were recorded by `support.security.matrix`, with the same requests in the same order. With MOLDAU_FULL=1
an Apache Kafka is asked again.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.jars import Jars
from moldau.broker.table import APIS
from support.kafka import jvm
from support.security.clients import Client
from support.security.matrix import Answers, all_rights, recorded, run
from support.security.named_clients import serving
from support.security.secured_kafka import LOGIN, secured_kafka

KAFKAS = recorded()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Answers]:
    directory: Path = tmp_path_factory.mktemp("matrix")
    with serving(directory, "admin", "alice") as addresses:
        admin, alice = Client(addresses["admin"]), Client(addresses["alice"])
        yield run(admin.ask, alice.ask, all_rights())
        admin.close()
        alice.close()


@pytest.mark.parametrize("request_name", KAFKAS)
def test_the_answers_are_kafkas(answers: Answers, request_name: str) -> None:
    assert answers[request_name] == KAFKAS[request_name]


# Before the login, or about users, tokens and quotas, whose rights are tested with real logins in test_sasl_acls.py.
NOT_IN_IT = (
    "ApiVersions",
    "SaslHandshake",
    "SaslAuthenticate",
    "DelegationToken",
    "ClientQuotas",
    "UserScramCredentials",
)


def test_every_other_api_of_clients_is_in_the_matrix() -> None:
    names = {api.messages.name for api in APIS if not api.messages.between_brokers and not api.messages.own}
    names = {name for name in names if not name.endswith(NOT_IN_IT)}
    asked = {name.partition(",")[0].split()[0] for name in KAFKAS}
    assert asked == names


def test_no_request_is_left_out(answers: Answers) -> None:
    assert answers.keys() == KAFKAS.keys()


@pytest.mark.skipif(not os.environ.get("MOLDAU_FULL"), reason="MOLDAU_FULL=1 starts an Apache Kafka to ask")
def test_the_record_is_what_kafka_answers(tmp_path: Path) -> None:
    jars = jvm.find()
    if not isinstance(jars, Jars):
        pytest.skip(jars)
    with secured_kafka(jars, tmp_path) as (of_admin, of_users):
        assert run(Client(of_admin).ask, Client(of_users, LOGIN).ask, all_rights()) == KAFKAS
