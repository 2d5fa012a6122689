"""A broker refuses a certificate that it cannot use before it asks the controller: to clients that may change it."""

from types import SimpleNamespace
from typing import Any

import pytest

from moldau.base.errors import WireError
from moldau.base.session import Principal, Session
from moldau.broker.apis.alter_configs import refuse_all, refuse_some
from moldau.broker.call import Call
from moldau.broker.resources import Resource
from moldau.broker.security.authorizer import Authorizer
from moldau.broker.security.denials import Denials
from moldau.broker.settings import load
from moldau.metadata.image import Broker, ClusterImage
from moldau.wire.messages import alter_configs as whole
from moldau.wire.messages import incremental_alter_configs as incremental

KEYSTORE = "listener.name.ssl.ssl.keystore.location"
PROBLEM = "Listener SSL cannot use these settings: cannot read /etc/shadow"


def asked(*brokers: str) -> incremental.IncrementalAlterConfigsRequest:
    config = incremental.AlterableConfig(name=KEYSTORE, config_operation=0, value="/etc/shadow")
    rows = (
        incremental.AlterConfigsResource(resource_type=Resource.BROKER, resource_name=each, configs=(config,))
        for each in brokers
    )
    return incremental.IncrementalAlterConfigsRequest(resources=tuple(rows), validate_only=False)


def context(problem: str | None = PROBLEM, *super_users: str) -> Any:
    config, _ = load({"node.id": "1", "listeners": "PLAINTEXT://:0"})
    image = ClusterImage(brokers={number: Broker(number, {}) for number in (1, 2)})
    authorizer = Authorizer(super_users, lambda: image, Denials()) if super_users else None
    return SimpleNamespace(
        config=config, image=image, static={}, authorizer=authorizer, tls_problem=lambda properties: problem
    )


def call(user: str = "alice") -> Call:
    return Call(Session("SSL", "10.0.0.1:1", principal=Principal("User", user)), 1, 1)


def test_it_is_refused_with_the_reason() -> None:
    response = refuse_some(context(), asked("1"), call())
    assert response is not None
    (row,) = response.responses
    assert (row.error_code, row.error_message) == (WireError.INVALID_CONFIG, PROBLEM)


def test_so_it_is_where_all_settings_are_replaced() -> None:
    config = whole.AlterableConfig(name=KEYSTORE, value="/etc/shadow")
    row = whole.AlterConfigsResource(resource_type=Resource.BROKER, resource_name="1", configs=(config,))
    response = refuse_all(context(), whole.AlterConfigsRequest(resources=(row,), validate_only=False), call())
    assert response is not None
    assert response.responses[0].error_code == WireError.INVALID_CONFIG


@pytest.mark.parametrize("brokers", [("2",), ("",), ("1", "2")])
def test_others_are_for_the_controller(brokers: tuple[str, ...]) -> None:
    assert refuse_some(context(), asked(*brokers), call()) is None


def test_one_that_can_be_used_is_forwarded() -> None:
    assert refuse_some(context(None), asked("1"), call()) is None


def test_files_are_not_told_to_users_without_the_right() -> None:
    secured = context(PROBLEM, "User:admin")
    assert refuse_some(secured, asked("1"), call()) is None
    assert refuse_some(secured, asked("1"), call("admin")) is not None
