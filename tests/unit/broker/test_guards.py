"""Every API has a guard, which asks for what the API's row declares, and for nothing else."""

from contextlib import closing
from pathlib import Path
from unittest import mock

import pytest

from moldau.broker.dispatch import Api
from moldau.broker.security.authorizer import Rights
from moldau.broker.security.gate import everyone
from moldau.broker.security.guards.table import GUARDS, HOT
from moldau.broker.table import APIS
from moldau.security.acls import Operation, ResourceType
from moldau.wire.messages.alter_organisations import AlterOrganisationsRequest
from moldau.wire.messages.describe_organisations import DescribeOrganisationsRequest
from support.clients.sasl import ACLS_AND_TOKENS, PLAIN_USERS, plain_jaas
from support.security.matrix import as_user, prepare, requests
from support.security.named_clients import serving

# Requests that the matrix does not have, since Apache Kafka does not know them.
OTHERS = (
    ("organisations", 0, DescribeOrganisationsRequest(names=None)),
    ("organisations", 0, AlterOrganisationsRequest(alterations=())),
)

LOGINS = {  # delegation tokens are for users that log in
    **ACLS_AND_TOKENS,
    "listener.security.protocol.map": ",".join(f"{name.upper()}:SASL_PLAINTEXT" for name in PLAIN_USERS),
    "sasl.enabled.mechanisms": "PLAIN",
    **{f"listener.name.{name}.plain.sasl.jaas.config": plain_jaas() for name in PLAIN_USERS},
}

Asked = dict[str, set[tuple[Operation, ResourceType]]]


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.messages.name)
def test_an_api_with_needs_has_a_guard(api: Api) -> None:
    key = api.messages.key
    assert (key in GUARDS) != (key in HOT)
    assert bool(api.needs) != (GUARDS.get(key) is everyone)


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Asked:
    """What each API asks for a client that may do everything, and for one that may do nothing."""
    found: Asked = {}
    answer = True

    def may(
        self: Rights, operation: Operation, resource: ResourceType, name: str, api: str, *, log: bool = True
    ) -> bool:
        found.setdefault(api, set()).add((operation, resource))
        return answer

    directory: Path = tmp_path_factory.mktemp("guards")
    with serving(directory, *PLAIN_USERS, **LOGINS) as addresses, mock.patch.object(Rights, "may", may):
        with closing(as_user(addresses["admin"], "admin")) as admin:
            prepared = prepare(admin.ask)
        with closing(as_user(addresses["alice"], "alice")) as alice:
            for answer in (True, False):  # noqa: B007 - `may` answers it
                for _, version, request in (*requests(*prepared), *OTHERS):
                    alice.ask(request, version)
    return found


OF_CLIENTS = [api for api in APIS if not api.messages.between_brokers]


@pytest.mark.parametrize("api", OF_CLIENTS, ids=lambda api: api.messages.name)
def test_a_guard_asks_for_what_is_declared(asked: Asked, api: Api) -> None:
    declared = {(need.operation, need.resource) for need in api.needs}
    found = asked.get(api.messages.name, set())
    assert found <= declared
    assert bool(found) == bool(declared)
