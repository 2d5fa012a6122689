"""SaslAuthenticate 0–2: one message of a login, to its mechanism. 1: the session's lifetime. 2: flexible."""

from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.security.authenticator import LATE, Authenticator
from moldau.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def sasl_authenticate(
    ctx: ControlContext, request: SaslAuthenticateRequest, call: Call
) -> SaslAuthenticateResponse | Later[SaslAuthenticateResponse]:
    login = call.session.authentication
    if not isinstance(login, Authenticator):  # the listener has no SASL
        return SaslAuthenticateResponse(error_code=WireError.ILLEGAL_SASL_STATE, error_message=LATE, auth_bytes=b"")
    return login.authenticate(request.auth_bytes)
