"""DescribeAcls 1–3: the ACLs that match a filter. 3: resources of type USER."""

from moldau.base.errors import WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.security.acl_documents import found
from moldau.broker.security.acl_requests import DISABLED, read_filter
from moldau.security.acls import AclEntry, ResourcePattern
from moldau.wire.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)


def describe_acls(ctx: ControlContext, request: DescribeAclsRequest, call: Call) -> DescribeAclsResponse:
    if ctx.authorizer is None:
        return DescribeAclsResponse(error_code=WireError.SECURITY_DISABLED, error_message=DISABLED)
    wanted = read_filter(request)
    if isinstance(wanted, str):
        return DescribeAclsResponse(error_code=WireError.INVALID_REQUEST, error_message=wanted)
    acls: dict[ResourcePattern, list[AclEntry]] = {}
    for pattern, entry in found(ctx.image.documents, wanted):
        acls.setdefault(pattern, []).append(entry)
    return DescribeAclsResponse(resources=tuple(_resource(pattern, entries) for pattern, entries in acls.items()))


def _resource(pattern: ResourcePattern, entries: list[AclEntry]) -> DescribeAclsResource:
    return DescribeAclsResource(
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        acls=tuple(
            AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in entries
        ),
    )
