"""The ACL matrix: every API with every right, and what its response says. Knows no broker.

Run as a program, it records the answers of an Apache Kafka, set up as in secured_kafka.py:
`python -m support.security.matrix HOST:PORT > tests/support/security/kafka.json`
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

from moldau.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    AclBinding,
    AclEntry,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
)
from moldau.wire.declare import fields_of
from moldau.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from moldau.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from moldau.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.create_delegation_token import (
    CreatableRenewer,
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_acls import DeleteAclsRequest
from moldau.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from moldau.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from support.clients.sasl import PLAIN_USERS
from support.eventually import eventually
from support.security.clients import Client
from support.security.matrix_requests import GROUP, ID, TOPIC, creation, requests, the_filter
from support.security.matrix_users import ADMIN, BOB, OF_ADMIN, OF_BOB, credential, quota

RECORDED = Path(__file__).with_name("kafka.json")
USER = "User:alice"
NAMES = {
    ResourceType.TOPIC: "*",
    ResourceType.GROUP: "*",
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: "*",
    ResourceType.DELEGATION_TOKEN: "*",
    ResourceType.USER: "*",
}
NOT_STABLE = (Operation.TWO_PHASE_COMMIT,)

Rights = list[AclBinding]
Answers = dict[str, dict[str, list[str]]]  # by request and by rights
Ask = Callable[[object, int], object]


def binding(resource: ResourceType, operation: Operation, permission: Permission = Permission.ALLOW) -> AclBinding:
    return AclBinding(ResourcePattern(resource, NAMES[resource]), AclEntry(USER, "*", operation, permission))


def all_rights() -> dict[str, Rights]:
    """The ACLs of each column of the matrix: nothing, one right, everything, everything and one denial."""
    columns: dict[str, Rights] = {"nothing": []}
    for resource in NAMES:
        for operation in SUPPORTED[resource]:
            if operation not in NOT_STABLE:
                columns[f"{operation.title} on {resource.title}"] = [binding(resource, operation)]
    everything = [binding(resource, Operation.ALL) for resource in NAMES]
    columns["everything"] = everything
    for resource in NAMES:
        denied = binding(resource, Operation.ALL, Permission.DENY)
        columns[f"everything, All on {resource.title} denied"] = [*everything, denied]
    return columns


NAMING = (
    *("name", "topic", "topic_name", "key", "group_id", "resource_name", "transactional_id"),
    *("user", "entity_name", "principal_name"),
)
TOLD = ("error_code", "partition_error_code", "topic_config_error_code")
OWN_SETTINGS = ("confluent.", "moldau.")  # of topics, which Apache Kafka does not have
OPERATIONS = ("authorized_operations", "topic_authorized_operations", "cluster_authorized_operations")


def told(response: object) -> list[str]:
    """The errors, authorized operations and names in a response, in no order."""
    return sorted(_told(response, ""))


def _told(value: object, at: str) -> Iterator[str]:
    if isinstance(value, tuple):
        for each in value:
            yield from _told(each, at)
    elif hasattr(type(value), "__wire_fields__"):
        found = {field.name: getattr(value, field.name) for field in fields_of(type(value))}
        name = next((str(found[key]) for key in NAMING if found.get(key)), "")
        if name.startswith(("__", *OWN_SETTINGS)):
            return  # internal topics, and settings that only we have
        at = f"{at}/{name}" if name else at
        if name:
            yield at
        for key, inner in found.items():
            if key in TOLD or key in OPERATIONS:
                yield f"{at} {key}={inner}"
            else:
                yield from _told(inner, at)


def give(admin: Ask, rights: Rights) -> None:
    """Make these the ACLs of the user. A broker of Apache Kafka has them a moment after its controller."""
    admin(DeleteAclsRequest(filters=(the_filter(USER), the_filter("User:nobody"))), 3)
    if rights:
        created = admin(CreateAclsRequest(creations=tuple(map(creation, rights))), 3)
        assert isinstance(created, CreateAclsResponse)
        assert not any(result.error_code for result in created.results), created
    wanted = {(acl.pattern.resource, acl.entry.operation, acl.entry.permission) for acl in rights}
    eventually(lambda: _given(admin) == wanted, "the ACLs at the broker")


def _given(admin: Ask) -> set[tuple[int, int, int]]:
    """The resource type, operation and permission of each ACL of the user."""
    found = admin(
        DescribeAclsRequest(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=USER,
            host_filter=None,
            operation=1,
            permission_type=1,
        ),
        3,
    )
    assert isinstance(found, DescribeAclsResponse)
    return {(each.resource_type, acl.operation, acl.permission_type) for each in found.resources for acl in each.acls}


def prepare(admin: Ask) -> tuple[UUID, bytes]:
    """A topic, a group with offsets, a transactional id, and what users have.

    The id of the topic, and the HMAC of the administrator's delegation token.
    """
    spec = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=())
    admin(CreateTopicsRequest(topics=(spec,)), 7)
    for key_type, key in ((0, GROUP), (1, ID)):
        _until(admin, FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,)), 4, key)
    committed = (OffsetCommitPartition(partition_index=0, committed_offset=1),)
    commit = OffsetCommitRequest(group_id=GROUP, topics=(OffsetCommitTopic(name=TOPIC, partitions=committed),))
    _until(admin, commit, 8, TOPIC)
    _until(admin, InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), 5)
    answered = admin(MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),)), 12)
    assert isinstance(answered, MetadataResponse)
    return answered.topics[0].topic_id, _prepare_users(admin)


def _prepare_users(admin: Ask) -> bytes:
    """A quota and a credential of bob, and a token of the administrator, which bob may renew."""
    admin(AlterClientQuotasRequest(entries=(quota(BOB, "producer_byte_rate"),), validate_only=False), 1)
    admin(AlterUserScramCredentialsRequest(deletions=(), upsertions=(credential(BOB, iterations=4096),)), 0)
    renewer = CreatableRenewer(principal_type="User", principal_name=BOB)
    token = admin(CreateDelegationTokenRequest(renewers=(renewer,), max_lifetime_ms=-1), 3)
    assert isinstance(token, CreateDelegationTokenResponse)
    assert token.error_code == 0, token
    _until(admin, OF_BOB, 1, BOB)
    _until(admin, DescribeUserScramCredentialsRequest(users=(UserName(name=BOB),)), 0, BOB)
    _until(admin, OF_ADMIN, 3, ADMIN)
    return token.hmac


def _until(admin: Ask, request: object, version: int, name: str = "") -> None:
    """Ask until there is no error, and the name is in the response: coordinators and images take a moment."""

    def there() -> bool:
        answered = told(admin(request, version))
        fine = all(each.endswith("error_code=0") for each in answered if "error_code" in each)
        return fine and (not name or f"/{name}" in answered)

    eventually(there, f"{name} in the response to {request}")


def run(address: str, columns: dict[str, Rights]) -> Answers:
    """What alice is told by the broker at this address, by request and rights."""
    with closing(as_user(address, ADMIN)) as admin, closing(as_user(address, "alice")) as alice:
        prepared = prepare(admin.ask)
        answers: Answers = {}
        for rights, acls in columns.items():
            give(admin.ask, acls)
            for name, version, request in requests(*prepared):
                answers.setdefault(name, {})[rights] = told(alice.ask(request, version))
    return answers


def as_user(address: str, name: str) -> Client:
    return Client(address, (name, PLAIN_USERS[name]))


def to_text(answers: Answers) -> str:
    """The answers with the rights that lead to each, a line for each answer."""
    rows: dict[str, list[str]] = {}
    for name, by_rights in answers.items():
        alike: dict[str, list[str]] = {}
        for rights, answer in by_rights.items():
            alike.setdefault(json.dumps(answer), []).append(rights)
        rows[name] = [f"[{answer}, {json.dumps(rights)}]" for answer, rights in alike.items()]
    inner = ",\n".join(f"{json.dumps(name)}: [\n" + ",\n".join(found) + "\n]" for name, found in rows.items())
    return f"{{\n{inner}\n}}\n"


def recorded() -> Answers:
    """The answers of Apache Kafka."""
    found = json.loads(RECORDED.read_text())
    return {name: {rights: answer for answer, alike in rows for rights in alike} for name, rows in found.items()}


if __name__ == "__main__":
    (its_address,) = sys.argv[1:]
    print(to_text(run(its_address, all_rights())), end="")
