"""CreateDelegationToken 1–3. 2: flexible. 3: an owner other than the requester."""

from uuid import uuid4

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Principal
from moldau.base.uuids import text_of
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import NOT_CONTROLLER, ControllerResponse, NotController
from moldau.broker.security.delegation_tokens import owner_of
from moldau.security.acls import Operation, ResourceType
from moldau.security.tokens import DelegationToken, create, hmac_of
from moldau.wire.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse


async def create_delegation_token(
    ctx: ControlContext, request: CreateDelegationTokenRequest, call: Call
) -> ControllerResponse[CreateDelegationTokenResponse]:
    tokens, requester = ctx.tokens, call.session.principal
    owner = owner_of(call.session, request.owner_principal_type, request.owner_principal_name)
    renewers = tuple(Principal(each.principal_type, each.principal_name) for each in request.renewers)
    if owner != requester and not _may_create_for(ctx, call, owner):
        return refused(owner, requester, WireError.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    rules = tokens.rules
    token = create(rules, _new_id(), owner, requester, renewers, request.max_lifetime_ms, tokens.now())
    problem = token if isinstance(token, Refusal) else await tokens.add(token)
    if problem is not None:
        response = refused(owner, requester, problem.error)
        return NotController(response) if problem is NOT_CONTROLLER else response
    assert isinstance(token, DelegationToken)
    assert rules.secret is not None
    return CreateDelegationTokenResponse(
        error_code=WireError.NONE,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=token.issued_ms,
        expiry_timestamp_ms=token.expires_ms,
        max_timestamp_ms=token.latest_ms,
        token_id=token.id,
        hmac=hmac_of(rules.secret, token.id),
    )


def _may_create_for(ctx: ControlContext, call: Call, owner: Principal) -> bool:
    """Without an authorizer nothing grants tokens of others."""
    rights = call.rights(ctx.authorizer)
    if rights is None:
        return False
    return rights.may(Operation.CREATE_TOKENS, ResourceType.USER, str(owner), "CreateDelegationToken")


def refused(owner: Principal, requester: Principal, error: WireError) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=error,
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind,
        token_requester_principal_name=requester.name,
    )


def _new_id() -> str:
    """Random, and without a dash in front, as Kafka's: commands would take it for an option."""
    while (token_id := text_of(uuid4())).startswith("-"):
        continue
    return token_id
