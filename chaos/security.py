"""Security of a run's cluster: SASL_SSL with SCRAM for clients and between brokers, and ACLs.

Users: `broker` has ClusterAction; `admin` is the only super user, and administers the run; `clients` has ACLs for
the topics, groups and transactional ids of the workloads, each by its name. Sessions are short, so that clients log in
again during faults.
"""

import secrets
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from chaos.access import MECHANISM, Access, Login
from chaos.workloads.table import Cast
from moldau.client.admin.users import create_first_user
from moldau.client.direct.connection import Connection
from moldau.client.direct.metadata import addresses
from moldau.ensemble.ports import HOST
from moldau.tools.certs.authority import Authority, write_private
from moldau.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from moldau.wire.messages.metadata import MetadataRequest, MetadataResponse

BROKER, ADMIN, CLIENTS = "broker", "admin", "clients"
SESSION_MS = 10_000
ITERATIONS = 4096
KNOWN_S = 60.0
ANY = 1  # of resources, patterns, operations and permissions in a filter
CLUSTER = "kafka-cluster"

Response = TypeVar("Response")


class Secured:
    """Certificates, users and settings of a cluster. `home` has, or will have, the directories of its brokers."""

    def __init__(self, home: Path, brokers: Iterable[int]) -> None:
        folder = home / "certificates"
        folder.mkdir(parents=True)
        authority = Authority()
        self._ca = write_private(folder / "ca.pem", authority.pem)
        self._keystore = write_private(folder / "broker.pem", authority.broker([HOST]).keystore_pem())
        self._passwords = {user: secrets.token_urlsafe(16) for user in (BROKER, ADMIN, CLIENTS)}
        for number in brokers:
            for user, password in self._passwords.items():
                create_first_user(home / f"broker-{number}", user, password, [MECHANISM], ITERATIONS)

    @property
    def settings(self) -> dict[str, object]:
        return {
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SASL_SSL",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._keystore,
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._ca,
            "sasl.enabled.mechanisms": MECHANISM,
            "sasl.mechanism.inter.broker.protocol": MECHANISM,
            "sasl.jaas.config": self.login(BROKER).jaas,
            "connections.max.reauth.ms": SESSION_MS,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{ADMIN}",
        }

    def login(self, user: str) -> Login:
        return Login(user, self._passwords[user], self._ca)


def admit_brokers(admin: Access) -> None:
    """Brokers can neither copy nor forward anything before."""
    _create(admin, [_allow(BROKER, ResourceType.BROKER, CLUSTER, AclOperation.CLUSTER_ACTION)])


def admit_clients(admin: Access, clients: Access, cast: Cast) -> None:
    """Create the ACLs of the workloads. Raises RuntimeError if clients see a topic without any."""
    for host, port in addresses(admin.bootstrap):
        seen = _ask(clients, host, port, MetadataRequest(topics=None), MetadataResponse).topics
        if seen:
            raise RuntimeError(f"without an ACL the clients see {len(seen)} topics at {host}:{port}")
    topics = [
        _allow(CLIENTS, ResourceType.TOPIC, name, operation)
        for name in cast.topics
        for operation in (AclOperation.READ, AclOperation.WRITE)
    ]
    groups = [_allow(CLIENTS, ResourceType.GROUP, name, AclOperation.READ) for name in cast.all_groups]
    transactional = [
        _allow(CLIENTS, ResourceType.TRANSACTIONAL_ID, name, AclOperation.WRITE) for name in cast.transactional_ids
    ]
    wanted = [*topics, *groups, *transactional]
    _create(admin, wanted)
    _await_known(admin, len(wanted))


def _allow(user: str, kind: ResourceType, name: str, operation: AclOperation) -> AclBinding:
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    return AclBinding(kind, name, literal, f"User:{user}", "*", operation, allow)


def _create(admin: Access, wanted: list[AclBinding]) -> None:
    client = AdminClient({**admin.librdkafka, "log_level": 0})
    for created in client.create_acls(wanted, request_timeout=KNOWN_S).values():
        created.result(KNOWN_S)


def _await_known(admin: Access, wanted: int) -> None:
    """Wait until every broker has the clients' ACLs in its image."""
    every = DescribeAclsRequest(
        resource_type_filter=ANY,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=f"User:{CLIENTS}",
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    until = time.monotonic() + KNOWN_S
    for host, port in addresses(admin.bootstrap):
        while True:
            found = _ask(admin, host, port, every, DescribeAclsResponse)
            if sum(len(each.acls) for each in found.resources) == wanted:
                break
            if time.monotonic() > until:
                raise TimeoutError(f"{host}:{port} does not have the {wanted} ACLs of the clients")
            time.sleep(0.05)


def _ask(access: Access, host: str, port: int, request: object, response: type[Response]) -> Response:
    connection = Connection(host, port, access.direct, client_id="chaos", timeout_s=KNOWN_S)
    try:
        return connection.ask(request, response)
    finally:
        connection.close()
