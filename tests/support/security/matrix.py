"""The ACL matrix: every API with every right, and what its response says. Knows no broker.

Run as a program, it records the answers of an Apache Kafka, whose `ADMIN` listener has a super user:
`python -m support.security.matrix ADMIN_HOST:PORT SASL_HOST:PORT user password > tests/support/security/kafka.json`
"""

import json
import sys
import time
from collections.abc import Callable, Iterator
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
from moldau.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from moldau.wire.messages.delete_acls import DeleteAclsRequest
from moldau.wire.messages.find_coordinator import FindCoordinatorRequest
from moldau.wire.messages.init_producer_id import InitProducerIdRequest
from moldau.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from moldau.wire.messages.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from support.security.clients import Client
from support.security.matrix_requests import GROUP, ID, TOPIC, creation, requests, the_filter

RECORDED = Path(__file__).with_name("kafka.json")
USER = "User:alice"
NAMES = {
    ResourceType.TOPIC: "*",
    ResourceType.GROUP: "*",
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: "*",
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


NAMING = ("name", "topic", "topic_name", "key", "group_id", "resource_name", "transactional_id")
TOLD = ("error_code", "partition_error_code", "topic_config_error_code")
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
        if name.startswith("__"):
            return  # internal topics
        at = f"{at}/{name}" if name else at
        if name:
            yield at
        for key, inner in found.items():
            if key in TOLD or key in OPERATIONS:
                yield f"{at} {key}={inner}"
            else:
                yield from _told(inner, at)


def give(admin: Ask, rights: Rights) -> None:
    """Make these the ACLs of the user."""
    admin(DeleteAclsRequest(filters=(the_filter(USER), the_filter("User:nobody"))), 3)
    if rights:
        created = admin(CreateAclsRequest(creations=tuple(map(creation, rights))), 3)
        assert isinstance(created, CreateAclsResponse)
        assert not any(result.error_code for result in created.results), created


def prepare(admin: Ask) -> UUID:
    """A topic, a group with offsets and a transactional id; the id of the topic."""
    spec = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=(), configs=())
    admin(CreateTopicsRequest(topics=(spec,)), 7)
    for key_type, key in ((0, GROUP), (1, ID)):
        _until(lambda: told(admin(FindCoordinatorRequest(key_type=key_type, coordinator_keys=(key,)), 4)), key)  # noqa: B023
    committed = (OffsetCommitPartition(partition_index=0, committed_offset=1),)
    commit = OffsetCommitRequest(group_id=GROUP, topics=(OffsetCommitTopic(name=TOPIC, partitions=committed),))
    _until(lambda: told(admin(commit, 8)), "OffsetCommit")
    _until(lambda: told(admin(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=1000), 5)), ID)
    answered = admin(MetadataRequest(topics=(MetadataRequestTopic(name=TOPIC),)), 12)
    assert isinstance(answered, MetadataResponse)
    return answered.topics[0].topic_id


def _until(ask: Callable[[], list[str]], what: str) -> None:
    """Ask until there is no error: coordinators take a moment."""
    for _ in range(100):
        answered = ask()
        if all(each.endswith("error_code=0") for each in answered if "error_code" in each):
            return
        time.sleep(0.1)
    raise AssertionError(f"{what}: {answered}")


def run(admin: Ask, user: Ask, columns: dict[str, Rights]) -> Answers:
    """What the user is told, by request and rights."""
    topic_id = prepare(admin)
    answers: Answers = {}
    for rights, acls in columns.items():
        give(admin, acls)
        for name, version, request in requests(topic_id):
            answers.setdefault(name, {})[rights] = told(user(request, version))
    return answers


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
    _, its_admin, its_users, user_name, password = sys.argv
    print(to_text(run(Client(its_admin).ask, Client(its_users, (user_name, password)).ask, all_rights())), end="")
