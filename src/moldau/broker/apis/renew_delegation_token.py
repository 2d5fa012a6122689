"""RenewDelegationToken 1–2: extend the life of a token."""

from moldau.base.errors import Refusal, WireError
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import NOT_CONTROLLER, ControllerResponse, NotController
from moldau.security.tokens import renew
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def renew_delegation_token(
    ctx: ControlContext, request: RenewDelegationTokenRequest, call: Call
) -> ControllerResponse[RenewDelegationTokenResponse]:
    tokens, principal, period_ms = ctx.tokens, call.session.principal, request.renew_period_ms
    found = await tokens.change(
        request.hmac, lambda token: renew(tokens.rules, token, principal, period_ms, tokens.now())
    )
    if isinstance(found, Refusal):
        response = RenewDelegationTokenResponse(error_code=found.error)
        return NotController(response) if found is NOT_CONTROLLER else response
    expires_ms = found.expires_ms if found else period_ms
    return RenewDelegationTokenResponse(error_code=WireError.NONE, expiry_timestamp_ms=expires_ms)
