"""DescribeDelegationToken 1–3: the tokens that the user owns, requested or may renew. 3: their requesters.

A request that names owners means the tokens that one of them owns, requested or may renew.
Unlike Kafka without an authorizer, others' tokens are not shown: a token's HMAC is a password.
"""

from functools import partial

from moldau.base.errors import WireError
from moldau.base.session import Principal
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.security.acls import Operation, ResourceType
from moldau.security.tokens import DelegationToken, hmac_of
from moldau.wire.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
    TokenRenewer,
)


def describe_delegation_token(
    ctx: ControlContext, request: DescribeDelegationTokenRequest, call: Call
) -> DescribeDelegationTokenResponse:
    secret = ctx.tokens.rules.secret
    if secret is None:
        return DescribeDelegationTokenResponse(error_code=WireError.DELEGATION_TOKEN_AUTH_DISABLED, tokens=())
    owners = None
    if request.owners is not None:
        owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]
    shown = [
        token
        for token in ctx.tokens.all()
        if (owners is None or any(map(token.may_see, owners))) and _may_see(ctx, call, token)
    ]
    return DescribeDelegationTokenResponse(
        error_code=WireError.NONE, tokens=tuple(_describe(token, secret) for token in shown)
    )


def _may_see(ctx: ControlContext, call: Call, token: DelegationToken) -> bool:
    """Its owner, requester and renewers may, and those with a right to the token or to the tokens of its owner."""
    if token.may_see(call.session.principal):
        return True
    rights = call.rights(ctx.authorizer)
    if rights is None:
        return False
    may = partial(rights.may, api="DescribeDelegationToken", log=False)
    return may(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.id) or may(
        Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner)
    )


def _describe(token: DelegationToken, secret: str) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.latest_ms,
        token_id=token.id,
        hmac=hmac_of(secret, token.id),
        renewers=tuple(TokenRenewer(principal_type=each.kind, principal_name=each.name) for each in token.renewers),
    )
