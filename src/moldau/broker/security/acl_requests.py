"""ACLs in requests: numbers and names of the wire as values, or what is wrong with them."""

from typing import TypeVar

from moldau.security.acls import (
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from moldau.wire.messages.create_acls import AclCreation
from moldau.wire.messages.delete_acls import DeleteAclsFilter
from moldau.wire.messages.describe_acls import DescribeAclsRequest

DISABLED = "No Authorizer is configured."
E = TypeVar("E", Operation, PatternType, Permission, ResourceType)


def read_filter(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter | str:
    resource, pattern = (
        _member(ResourceType, asked.resource_type_filter),
        _member(PatternType, asked.pattern_type_filter),
    )
    if resource is None or pattern is None:
        return "Unknown patternFilter."
    operation, permission = _member(Operation, asked.operation), _member(Permission, asked.permission_type)
    if operation is None or permission is None:
        return "Unknown entryFilter."
    name, principal, host = asked.resource_name_filter, asked.principal_filter, asked.host_filter
    return AclFilter(resource, name, pattern, principal, host, operation, permission)


def read_binding(asked: AclCreation) -> AclBinding | str:
    """The ACL to create, or why it cannot be."""
    resource = _member(ResourceType, asked.resource_type)
    if resource is ResourceType.CLUSTER and asked.resource_name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not asked.resource_name:
        return "Invalid empty resource name"
    if resource is None or resource is ResourceType.ANY:
        return f"Invalid resourceType {_name(resource)}"
    pattern = _member(PatternType, asked.resource_pattern_type)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED) or pattern is None:
        return f"Invalid patternType {_name(pattern)}"
    operation = _member(Operation, asked.operation)
    if operation is None or operation is Operation.ANY:
        return f"Invalid operation {_name(operation)}"
    permission = _member(Permission, asked.permission_type)
    if permission is None or permission is Permission.ANY:
        return f"Invalid permissionType {_name(permission)}"
    if ":" not in asked.principal:
        return (
            f"Could not parse principal from `{asked.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    entry = AclEntry(asked.principal, asked.host, operation, permission)
    return AclBinding(ResourcePattern(resource, asked.resource_name, pattern), entry)


def _member(of: type[E], number: int) -> E | None:
    try:
        return of(number)
    except ValueError:
        return None


def _name(member: Operation | PatternType | Permission | ResourceType | None) -> str:
    return "UNKNOWN" if member is None else member.name
