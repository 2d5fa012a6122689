"""Every API and error has one row, is used and explained, and docs/protocol.md is up to date."""

import ast
import re

import pytest
from kafka.errors import for_code

from moldau.base.errors import WireError
from moldau.broker.dispatch import Api
from moldau.broker.needs import Need
from moldau.broker.protocol_page import notes_on, render, served
from moldau.broker.table import APIS
from moldau.security.acls import Operation, ResourceType
from moldau.wire.messages import registry
from support.repository.sources import PACKAGE, ROOT, SOURCES, parsed

PAGE = ROOT / "docs" / "protocol.md"


def test_the_broker_serves_what_the_wire_layer_knows() -> None:
    assert [row.messages for row in APIS] == list(registry.APIS), "in the order of the registry"
    keys = [api.messages.key for api in APIS]
    assert keys == sorted(set(keys))


BEFORE_LOGIN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate"}  # clients send them before they authenticate
OF_OWNERS = {"RenewDelegationToken", "ExpireDelegationToken"}  # the token itself names those that may


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.messages.name)
def test_an_api_is_one_file_that_names_its_versions(api: Api) -> None:
    handler = api.handler or api.hot
    assert handler is not None
    assert handler.__module__.startswith("moldau.broker.apis.")
    assert re.search(rf"\b{api.messages.name} {served(api.messages)}(?![–\d])", notes_on(api)), notes_on(api)


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.messages.name)
def test_an_api_declares_what_it_needs(api: Api) -> None:
    assert bool(api.needs) == (api.messages.name not in BEFORE_LOGIN | OF_OWNERS)
    if api.messages.between_brokers:
        assert api.needs == (Need(Operation.CLUSTER_ACTION, ResourceType.CLUSTER),)


def test_every_file_among_the_apis_serves_one() -> None:
    serving = {(api.handler or api.hot).__module__.rpartition(".")[2] for api in APIS}  # type: ignore[union-attr]
    assert {path.stem for path in (PACKAGE / "broker" / "apis").glob("*.py")} - {"__init__"} == serving


@pytest.mark.parametrize("error", WireError, ids=lambda error: error.name)
def test_an_error_says_what_it_means(error: WireError) -> None:
    assert error.doc.endswith(".")
    assert error.doc[0].isupper() or error.doc.split()[0] in ("acks", "delete.topic.enable")


def test_every_error_is_answered_somewhere() -> None:
    used = {
        node.attr
        for path in SOURCES
        if path.name != "errors.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "WireError"
    }
    assert used == set(WireError.__members__), "an error that no API returns has no row"


@pytest.mark.parametrize("error", sorted(set(WireError) - {WireError.CORRUPT_MESSAGE}), ids=lambda error: error.name)
def test_clients_agree_on_what_may_be_retried(error: WireError) -> None:
    """Compare with kafka-python, except CORRUPT_MESSAGE: Java and librdkafka retry it, kafka-python does not."""
    known = for_code(int(error))
    assert known.errno == error
    assert known.retriable == error.retriable


def test_the_page_is_up_to_date() -> None:
    command = "python -m moldau.broker.protocol_page > docs/protocol.md"
    assert PAGE.read_text() == render(), f"docs/protocol.md is out of date; run: {command}"
