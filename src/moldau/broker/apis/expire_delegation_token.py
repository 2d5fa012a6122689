"""ExpireDelegationToken 1–2: set the end of a token; a negative period deletes it now."""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import NOT_CONTROLLER, ControllerResponse, NotController
from moldau.security.tokens import expire
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


async def expire_delegation_token(
    ctx: ControlContext, request: ExpireDelegationTokenRequest, call: Call
) -> ControllerResponse[ExpireDelegationTokenResponse]:
    tokens, principal, period_ms = ctx.tokens, call.session.principal, request.expiry_time_period_ms
    found = await tokens.change(
        request.hmac, lambda token: expire(tokens.rules, token, principal, period_ms, tokens.now())
    )
    if isinstance(found, Refusal):
        response = ExpireDelegationTokenResponse(error_code=found.error)
        return NotController(response) if found is NOT_CONTROLLER else response
    expires_ms = found.expires_ms if found else period_ms
    return ExpireDelegationTokenResponse(error_code=WireError.NONE, expiry_timestamp_ms=expires_ms)
