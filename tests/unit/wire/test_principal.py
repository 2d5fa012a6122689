"""The principal in an Envelope, as Kafka's DefaultKafkaPrincipalBuilder writes and reads it."""

from io import BytesIO
from struct import pack

import pytest
from kio.schema.default_principal_data.v0.data import DefaultPrincipalData as TheirPrincipalData
from kio.serial import entity_reader, entity_writer

from moldau.base.session import ANONYMOUS, Principal
from moldau.wire.codec import MalformedMessage
from moldau.wire.messages.principal import pack_principal, read_principal

ALICE = Principal("User", "alice")


def test_the_bytes_are_those_of_kafka() -> None:
    """Version 0 in two bytes, then compact strings, a boolean and no tagged fields."""
    assert pack_principal(ALICE) == b"\0\0" + b"\5User" + b"\6alice" + b"\0" + b"\0"
    assert pack_principal(ALICE, token_authenticated=True) == b"\0\0" + b"\5User" + b"\6alice" + b"\1" + b"\0"


@pytest.mark.parametrize("principal", [ANONYMOUS, ALICE, Principal("User", "CN=řeka,O=Moldau"), Principal("", "")])
def test_kio_reads_and_writes_the_same(principal: Principal) -> None:
    ours = pack_principal(principal)
    theirs, _ = entity_reader(TheirPrincipalData)(ours, 2)
    assert (theirs.type_, theirs.name, theirs.token_authenticated) == (*principal, False)
    written = BytesIO()
    entity_writer(TheirPrincipalData)(written, theirs)
    assert pack(">h", 0) + written.getvalue() == ours
    assert read_principal(ours) == principal


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\1" + pack_principal(ALICE)[2:], pack_principal(ALICE)[:-3]])
def test_a_principal_of_another_format_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedMessage):
        read_principal(data)
