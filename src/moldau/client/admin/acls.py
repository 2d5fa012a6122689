"""ACLs of a cluster: find, create and delete them, and what a principal may do by them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from moldau.base.errors import WireError
from moldau.client.admin.cluster import Cluster
from moldau.client.admin.errors import refused
from moldau.security.acl_index import AclIndex
from moldau.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from moldau.wire.messages.create_acls import AclCreation, CreateAclsRequest, CreateAclsResponse
from moldau.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest, DeleteAclsResponse
from moldau.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from moldau.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)

BROKER = 4  # a kind of resource with configs
SUPER_USERS, EVERYONE = "super.users", "allow.everyone.if.no.acl.found"


@dataclass(frozen=True, slots=True)
class Authorization:
    """What decides in a cluster. Without an authorizer every client may do everything."""

    enabled: bool
    acls: tuple[AclBinding, ...] = ()
    super_users: tuple[str, ...] = ()
    allow_everyone: bool = False
    told: bool = True  # False: the brokers do not tell those two settings, as Apache Kafka's do not

    def index(self) -> AclIndex:
        index = AclIndex(self.super_users, allow_everyone=self.allow_everyone)
        for pattern, entry in self.acls:
            index.put(pattern, (*index.entries(pattern), entry))
        return index


def find_acls(cluster: Cluster, wanted: AclFilter) -> list[AclBinding]:
    answer = _describe(cluster, wanted)
    if answer.error_code:
        raise refused(answer.error_code, f"cannot list ACLs: {_message(answer.error_message)}")
    return _bindings(answer)


def create_acls(cluster: Cluster, bindings: Sequence[AclBinding]) -> None:
    """Create those that there are not yet; the first that is refused is raised."""
    creations = tuple(
        AclCreation(
            resource_type=pattern.resource,
            resource_name=pattern.name,
            resource_pattern_type=pattern.pattern,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for pattern, entry in bindings
    )
    answer = cluster.ask(CreateAclsRequest(creations=creations), CreateAclsResponse)
    for result in answer.results:
        if result.error_code:
            raise refused(result.error_code, f"cannot create an ACL: {_message(result.error_message)}")


def delete_acls(cluster: Cluster, filters: Iterable[AclFilter]) -> list[AclBinding]:
    """Delete what matches, and return it."""
    asked = tuple(
        DeleteAclsFilter(
            resource_type_filter=each.resource,
            resource_name_filter=each.name,
            pattern_type_filter=each.pattern,
            principal_filter=each.principal,
            host_filter=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in filters
    )
    answer = cluster.ask(DeleteAclsRequest(filters=asked), DeleteAclsResponse)
    deleted: dict[AclBinding, None] = {}
    for result in answer.filter_results:
        problems = [(row.error_code, row.error_message) for row in result.matching_acls]
        for code, message in [(result.error_code, result.error_message), *problems]:
            if code:
                raise refused(code, f"cannot delete ACLs: {_message(message)}")
        for acl in result.matching_acls:
            pattern = ResourcePattern(ResourceType(acl.resource_type), acl.resource_name, PatternType(acl.pattern_type))
            entry = AclEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type))
            deleted[AclBinding(pattern, entry)] = None
    return list(deleted)


def read_authorization(cluster: Cluster) -> Authorization:
    """The ACLs of a cluster, with the settings of one of its brokers that count with them."""
    answer = _describe(cluster, AclFilter())
    if answer.error_code == WireError.SECURITY_DISABLED:
        return Authorization(enabled=False)
    if answer.error_code:
        raise refused(answer.error_code, f"cannot list ACLs: {_message(answer.error_message)}")
    broker = cluster.ids[0]
    resource = DescribeConfigsResource(
        resource_type=BROKER, resource_name=str(broker), configuration_keys=(SUPER_USERS, EVERYONE)
    )
    described = cluster.broker(broker).ask(DescribeConfigsRequest(resources=(resource,)), DescribeConfigsResponse)
    values = {each.name: each.value or "" for result in described.results for each in result.configs}
    users = tuple(filter(None, (each.strip() for each in values.get(SUPER_USERS, "").split(";"))))
    everyone = values.get(EVERYONE, "").strip().lower() == "true"
    return Authorization(True, tuple(_bindings(answer)), users, everyone, SUPER_USERS in values)


def _describe(cluster: Cluster, wanted: AclFilter) -> DescribeAclsResponse:
    request = DescribeAclsRequest(
        resource_type_filter=wanted.resource,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )
    return cluster.ask(request, DescribeAclsResponse)


def _bindings(answer: DescribeAclsResponse) -> list[AclBinding]:
    return sorted(
        AclBinding(
            ResourcePattern(ResourceType(row.resource_type), row.resource_name, PatternType(row.pattern_type)),
            AclEntry(acl.principal, acl.host, Operation(acl.operation), Permission(acl.permission_type)),
        )
        for row in answer.resources
        for acl in row.acls
    )


def _message(text: str | None) -> str:
    return (text or "refused").rstrip(".")
