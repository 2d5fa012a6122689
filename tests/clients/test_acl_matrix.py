"""Every API with every right: the errors are those of Apache Kafka with its StandardAuthorizer.

Kafka's answers were recorded by `support.security.matrix`, with the same requests in the same order. With MOLDAU_FULL=1
an Apache Kafka is asked again.
"""

import os
from pathlib import Path

import pytest

from benchmarks.jars import Jars
from moldau.broker.table import APIS
from support.clients.sasl import ACLS_AND_TOKENS, sasl_broker
from support.kafka import jvm
from support.security.matrix import Answers, all_rights, recorded, run
from support.security.secured_kafka import secured_kafka

KAFKAS = recorded()


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> Answers:
    directory: Path = tmp_path_factory.mktemp("matrix")
    topics = {"offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1}
    with sasl_broker(directory / "data", **ACLS_AND_TOKENS, **topics) as broker:
        return run(broker.bootstrap_servers, all_rights())


@pytest.mark.parametrize("request_name", KAFKAS)
def test_the_answers_are_kafkas(answers: Answers, request_name: str) -> None:
    assert answers[request_name] == KAFKAS[request_name]


BEFORE_THE_LOGIN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}


def test_every_other_api_of_clients_is_in_the_matrix() -> None:
    names = {api.messages.name for api in APIS if not api.messages.between_brokers and not api.messages.own}
    asked = {name.partition(",")[0].split()[0] for name in KAFKAS}
    assert asked == names - BEFORE_THE_LOGIN


def test_no_request_is_left_out(answers: Answers) -> None:
    assert answers.keys() == KAFKAS.keys()


@pytest.mark.skipif(not os.environ.get("MOLDAU_FULL"), reason="MOLDAU_FULL=1 starts an Apache Kafka to ask")
def test_the_record_is_what_kafka_answers(tmp_path: Path) -> None:
    jars = jvm.find()
    if not isinstance(jars, Jars):
        pytest.skip(jars)
    with secured_kafka(jars, tmp_path) as address:
        assert run(address, all_rights()) == KAFKAS
