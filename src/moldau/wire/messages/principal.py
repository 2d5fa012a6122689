"""DefaultPrincipalData: the principal of a forwarded request, in an Envelope."""

from struct import pack, unpack_from

from moldau.base.session import Principal
from moldau.wire.codec import decode, encode
from moldau.wire.declare import BOOL, STRING, message, wire
from moldau.wire.primitives import Buffer, MalformedMessage

VERSION = 0
NO_KEY = -1  # not an API
VERSION_SIZE = 2


@message(key=NO_KEY, versions=(VERSION, VERSION), flexible=0)
class DefaultPrincipalData:
    type: str = wire(STRING)
    name: str = wire(STRING)
    token_authenticated: bool = wire(BOOL)


def pack_principal(principal: Principal, *, token_authenticated: bool = False) -> bytes:
    data = DefaultPrincipalData(type=principal.kind, name=principal.name, token_authenticated=token_authenticated)
    return pack(">h", VERSION) + encode(data, VERSION)


def read_principal(data: Buffer) -> Principal:
    """Decode the principal of an Envelope; MalformedMessage for another format or a newer version."""
    if len(data) < VERSION_SIZE:
        raise MalformedMessage("a principal is too short for its version")
    version: int = unpack_from(">h", data)[0]
    if version != VERSION:
        raise MalformedMessage(f"a principal of version {version}; only {VERSION} is known")
    found = decode(DefaultPrincipalData, version, data, VERSION_SIZE)
    return Principal(found.type, found.name)
