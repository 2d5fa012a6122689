"""Envelope: a client's request that a broker forwards to the controller, header included (KIP-590).

Between brokers only.
"""

from moldau.wire.declare import BYTES, INT16, message, wire


@message(key=58, versions=(0, 0), flexible=0)
class EnvelopeRequest:
    request_data: bytes = wire(BYTES)
    request_principal: bytes | None = wire(BYTES, nullable=0, default=None)
    client_host_address: bytes = wire(BYTES)


@message(key=58, versions=(0, 0), flexible=0)
class EnvelopeResponse:
    response_data: bytes | None = wire(BYTES, nullable=0, default=None)
    error_code: int = wire(INT16)
