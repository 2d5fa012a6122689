"""Every API with every right: the errors are those of Apache Kafka with its StandardAuthorizer.

Kafka's answers were recorded by `support.security.matrix`, with the same requests in the same order.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from moldau.broker.table import APIS
from support.security.clients import Client
from support.security.matrix import Answers, all_rights, recorded, run
from support.security.named_clients import serving

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


def test_every_api_of_clients_is_in_the_matrix() -> None:
    names = {api.messages.name for api in APIS if not api.messages.between_brokers} - {"ApiVersions"}
    asked = {name.partition(",")[0].split()[0] for name in KAFKAS}
    assert asked == names


def test_no_request_is_left_out(answers: Answers) -> None:
    assert answers.keys() == KAFKAS.keys()
