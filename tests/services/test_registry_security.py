"""Users of a registry are those of the brokers, and their rights those of the brokers' ACLs."""

import base64
import uuid
from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from moldau.testing import Broker
from support.clients.sasl import ACLS_AND_TOKENS, PLAIN_USERS, SECONDS, as_admin, sasl_broker
from support.eventually import eventually
from support.services.registry import Answer, RegistryProcess, record

ADMIN = ("admin", PLAIN_USERS["admin"])
ALICE = ("alice", PLAIN_USERS["alice"])


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with sasl_broker(tmp_path_factory.mktemp("secured") / "data", **ACLS_AND_TOKENS) as started:
        yield started


@pytest.fixture(scope="module")
def registry(secured: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryProcess]:
    folder = tmp_path_factory.mktemp("registry")
    properties = folder / "client.properties"
    properties.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.username={ADMIN[0]}\nsasl.password={ADMIN[1]}\n"
    )
    options = ("--authentication", "PLAIN", "-X", f"@{properties}")
    process = RegistryProcess(folder, secured.bootstrap_servers, uuid.uuid4().hex[:8], *options).start()
    yield process
    process.stop()


def login(user: tuple[str, str]) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(":".join(user).encode()).decode()}


def ask(registry: RegistryProcess, user: tuple[str, str], method: str, path: str, body: object = None) -> Answer:
    return registry.ask(method, path, body, login(user))


def allow(broker: Broker, operation: AclOperation, topic: str) -> None:
    rule = AclBinding(
        ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:alice", "*", operation, AclPermissionType.ALLOW
    )
    admin = as_admin(broker.bootstrap_servers)
    for done in admin.create_acls([rule]).values():
        done.result(SECONDS)


def test_logins(registry: RegistryProcess) -> None:
    assert registry.ask("GET", "/subjects").code == 40101
    assert ask(registry, ("alice", "wrong"), "GET", "/subjects").code == 40101
    assert ask(registry, ("mallory", "x"), "GET", "/subjects").code == 40101
    assert registry.ask("GET", "/subjects", headers={"Authorization": "Bearer x"}).code == 40101
    assert ask(registry, ALICE, "GET", "/subjects").status == 200


def test_rights_on_a_subject_are_those_on_its_topic(secured: Broker, registry: RegistryProcess) -> None:
    path = "/subjects/orders-value/versions"
    schema = {"schema": str(record("Order", id="long")).replace("'", '"')}
    registered = ask(registry, ADMIN, "POST", path, schema)
    assert registered.status == 200
    denied = ask(registry, ALICE, "POST", path, schema)
    assert (denied.status, denied.code) == (403, 40301)
    assert "User alice is denied Write on topic 'orders'" in denied.body["message"]
    assert ask(registry, ALICE, "GET", path).code == 40301
    assert ask(registry, ALICE, "GET", "/subjects").body == []
    assert ask(registry, ALICE, "GET", "/schemas").body == []
    schema_id = registered.body["id"]
    assert ask(registry, ALICE, "GET", f"/schemas/ids/{schema_id}").code == 40403

    allow(secured, AclOperation.READ, "orders")
    eventually(lambda: ask(registry, ALICE, "GET", path).status == 200, "alice may read")
    assert ask(registry, ALICE, "GET", "/subjects").body == ["orders-value"]
    assert ask(registry, ALICE, "GET", f"/schemas/ids/{schema_id}").status == 200
    assert ask(registry, ALICE, "POST", path, schema).code == 40301

    allow(secured, AclOperation.WRITE, "orders")
    eventually(lambda: ask(registry, ALICE, "POST", path, schema).status == 200, "alice may write")
    assert ask(registry, ALICE, "POST", "/subjects/orders-key/versions", {"schema": '"string"'}).status == 200
    assert ask(registry, ALICE, "POST", "/subjects/others-value/versions", schema).code == 40301
    assert ask(registry, ALICE, "DELETE", "/subjects/orders-value").code == 40301
    assert ask(registry, ALICE, "PUT", "/config/orders-value", {"compatibility": "NONE"}).code == 40301
    assert ask(registry, ALICE, "PUT", "/config", {"compatibility": "NONE"}).code == 40301
    assert ask(registry, ALICE, "PUT", "/mode/:.eu:", {"mode": "READONLY"}).code == 40301


def test_an_alias_gives_no_rights(registry: RegistryProcess, secured: Broker) -> None:
    schema = {"schema": '"string"'}
    ask(registry, ADMIN, "POST", "/subjects/secret-value/versions", schema)
    ask(registry, ADMIN, "PUT", "/config/open-value", {"alias": "secret-value"})
    allow(secured, AclOperation.READ, "open")
    allow(secured, AclOperation.READ, "sentinel")
    ask(registry, ADMIN, "POST", "/subjects/sentinel-value/versions", schema)
    seen = "/subjects/sentinel-value/versions"
    eventually(lambda: ask(registry, ALICE, "GET", seen).status == 200, "the new ACLs count")
    assert ask(registry, ALICE, "GET", "/subjects/open-value/versions").code == 40301


def test_passwords_are_not_in_the_log(registry: RegistryProcess) -> None:
    for _, password in (ADMIN, ALICE):
        assert password not in registry.log_text()
