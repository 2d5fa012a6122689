"""RenewDelegationToken 1–2: extend the life of a token. ExpireDelegationToken 1–2: set its end, or delete it now."""

from collections.abc import Callable
from typing import TypeVar

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Principal
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.controller import NOT_CONTROLLER, ControllerResponse, NotController
from moldau.security.tokens import DelegationToken, TokenRules, expire, renew
from moldau.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse
from moldau.wire.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse

Rule = Callable[
    [TokenRules, DelegationToken | None, Principal, int, int], DelegationToken | Refusal | None
]  # the rules, the token, the principal that asks, the period and the time; None: the token is deleted
R = TypeVar("R", RenewDelegationTokenResponse, ExpireDelegationTokenResponse)


async def renew_delegation_token(
    ctx: ControlContext, request: RenewDelegationTokenRequest, call: Call
) -> ControllerResponse[RenewDelegationTokenResponse]:
    return await _change(ctx, call, request.hmac, request.renew_period_ms, renew, RenewDelegationTokenResponse)


async def expire_delegation_token(
    ctx: ControlContext, request: ExpireDelegationTokenRequest, call: Call
) -> ControllerResponse[ExpireDelegationTokenResponse]:
    return await _change(ctx, call, request.hmac, request.expiry_time_period_ms, expire, ExpireDelegationTokenResponse)


async def _change(
    ctx: ControlContext, call: Call, hmac: bytes, period_ms: int, rule: Rule, response: type[R]
) -> ControllerResponse[R]:
    tokens, principal = ctx.tokens, call.session.principal
    found = await tokens.change(hmac, lambda token: rule(tokens.rules, token, principal, period_ms, tokens.now()))
    if isinstance(found, Refusal):
        refused = response(error_code=found.error)
        return NotController(refused) if found is NOT_CONTROLLER else refused
    return response(error_code=WireError.NONE, expiry_timestamp_ms=found.expires_ms if found else period_ms)
