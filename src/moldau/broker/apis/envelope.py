"""Envelope 0: a client's request that another broker forwards to the controller (KIP-590). Between brokers."""

from moldau.base.errors import Refusal, WireError
from moldau.base.session import Session
from moldau.broker.call import Call
from moldau.broker.context import ControlContext
from moldau.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from moldau.wire.messages.principal import read_principal
from moldau.wire.primitives import MalformedMessage


async def envelope(ctx: ControlContext, request: EnvelopeRequest, call: Call) -> EnvelopeResponse:
    peer = request.client_host_address.decode(errors="replace")
    session = Session(call.session.listener, peer)
    if request.request_principal is not None:  # None: from a broker of an earlier release
        try:
            session.principal = read_principal(request.request_principal)
        except MalformedMessage:
            return EnvelopeResponse(error_code=WireError.PRINCIPAL_DESERIALIZATION_FAILURE)
    answer = await ctx.serve_forwarded(memoryview(request.request_data), session)
    if isinstance(answer, Refusal):
        return EnvelopeResponse(error_code=answer.error)
    return EnvelopeResponse(error_code=WireError.NONE, response_data=answer)
