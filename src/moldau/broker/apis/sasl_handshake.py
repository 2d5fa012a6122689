"""SaslHandshake 0–1: the mechanism of a login. 0: tokens follow without headers. 1: SaslAuthenticate follows."""

from moldau.base.errors import WireError
from moldau.base.later import Later
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.broker.security.authenticator import Authenticator
from moldau.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def sasl_handshake(
    ctx: ControlContext, request: SaslHandshakeRequest, call: Call
) -> SaslHandshakeResponse | Later[SaslHandshakeResponse]:
    login = call.session.authentication
    if not isinstance(login, Authenticator):  # the listener has no SASL
        return SaslHandshakeResponse(error_code=WireError.ILLEGAL_SASL_STATE, mechanisms=())
    return login.handshake(request.mechanism, call.version)
