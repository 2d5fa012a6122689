"""CreateAcls 1–3: each ACL is created or refused; one that exists already is a success. 3: resources of type USER."""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import NOTHING, ControllerResponse, unless_deposed
from moldau.broker.security.acl_documents import created
from moldau.broker.security.acl_requests import DISABLED, read_binding
from moldau.metadata.changes import Change
from moldau.metadata.image import ClusterImage
from moldau.security.acls import AclBinding
from moldau.wire.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


async def create_acls(
    ctx: ControlContext, request: CreateAclsRequest, call: Call
) -> ControllerResponse[CreateAclsResponse]:
    if ctx.authorizer is None:
        disabled = _result(WireError.SECURITY_DISABLED, DISABLED)
        return CreateAclsResponse(results=(disabled,) * len(request.creations))
    asked = [read_binding(creation) for creation in request.creations]
    bindings = [each for each in asked if isinstance(each, AclBinding)]

    def decide(image: ClusterImage) -> Change:
        return created(image.documents, bindings) or NOTHING

    outcome = await ctx.controller.submit(decide) if bindings else NOTHING
    failed = _result(outcome.error, outcome.message) if isinstance(outcome, Refusal) else AclCreationResult()
    results = tuple(_result(WireError.INVALID_REQUEST, each) if isinstance(each, str) else failed for each in asked)
    return unless_deposed(CreateAclsResponse(results=results), [outcome])


def _result(error: WireError, message: str | None) -> AclCreationResult:
    return AclCreationResult(error_code=error, error_message=message)
