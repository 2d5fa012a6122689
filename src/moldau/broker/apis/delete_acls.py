"""DeleteAcls 1–3: every ACL that matches one of the filters; the response lists them. 3: resources of type USER."""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import NOTHING, ControllerResponse, unless_deposed
from moldau.broker.security.acl_documents import deleted
from moldau.broker.security.acl_requests import DISABLED, read_filter
from moldau.metadata.changes import Change
from moldau.metadata.image import ClusterImage
from moldau.security.acls import AclBinding, AclFilter
from moldau.wire.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def delete_acls(
    ctx: ControlContext, request: DeleteAclsRequest, call: Call
) -> ControllerResponse[DeleteAclsResponse]:
    if ctx.authorizer is None:
        disabled = DeleteAclsFilterResult(error_code=WireError.SECURITY_DISABLED, error_message=DISABLED)
        return DeleteAclsResponse(filter_results=(disabled,) * len(request.filters))
    asked = [read_filter(each) for each in request.filters]
    filters = [each for each in asked if isinstance(each, AclFilter)]
    matching: list[set[AclBinding]] = []

    def decide(image: ClusterImage) -> Change:
        nonlocal matching
        change, matching = deleted(image.documents, filters)
        return change or NOTHING

    outcome = await ctx.controller.submit(decide)
    left = iter(matching)
    results = tuple(
        DeleteAclsFilterResult(error_code=WireError.INVALID_REQUEST, error_message=each)
        if isinstance(each, str)
        else _result(outcome, next(left, set()))
        for each in asked
    )
    return unless_deposed(DeleteAclsResponse(filter_results=results), [outcome])


def _result(outcome: Change | Refusal, matching: set[AclBinding]) -> DeleteAclsFilterResult:
    if isinstance(outcome, Refusal):
        return DeleteAclsFilterResult(error_code=outcome.error, error_message=outcome.message)
    return DeleteAclsFilterResult(matching_acls=tuple(map(_matching, sorted(matching))))


def _matching(binding: AclBinding) -> DeleteAclsMatchingAcl:
    pattern, entry = binding
    return DeleteAclsMatchingAcl(
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
