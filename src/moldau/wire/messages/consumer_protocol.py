"""The embedded consumer protocol: subscriptions in JoinGroup and assignments in SyncGroup.

A broker decodes them only to find the topics of a classic group, and where members of both protocols share a group
(KIP-848). Version 1 of a subscription adds the owned partitions (KIP-429), 2 the generation, 3 the rack (KIP-881); the
versions of an assignment do not differ. A version above 3 is read as 3 and the bytes behind it are ignored, as the
format intends.
"""

from struct import pack, unpack_from
from typing import TypeVar

from moldau.wire.codec import decode, encode
from moldau.wire.declare import BYTES, INT32, STRING, TOPIC_NAME, Array, layout_of, message, struct, wire
from moldau.wire.primitives import Buffer, MalformedMessage

M = TypeVar("M")

PROTOCOL_TYPE = "consumer"  # the protocol type of these members in JoinGroup
NEWEST_VERSION = 3
NO_KEY = -1  # not an API


@struct
class ConsumerProtocolTopic:
    topic: str = wire(TOPIC_NAME)
    partitions: tuple[int, ...] = wire(Array(INT32))


@message(key=NO_KEY, versions=(0, NEWEST_VERSION), flexible=None)
class ConsumerProtocolSubscription:
    topics: tuple[str, ...] = wire(Array(TOPIC_NAME))
    user_data: bytes | None = wire(BYTES, nullable=0, default=None)
    owned_partitions: tuple[ConsumerProtocolTopic, ...] = wire(
        Array(ConsumerProtocolTopic), since=1, default=(), ignorable=True
    )
    generation_id: int = wire(INT32, since=2, default=-1, ignorable=True)
    rack_id: str | None = wire(STRING, nullable=3, since=3, default=None, ignorable=True)


@message(key=NO_KEY, versions=(0, NEWEST_VERSION), flexible=None)
class ConsumerProtocolAssignment:
    assigned_partitions: tuple[ConsumerProtocolTopic, ...] = wire(Array(ConsumerProtocolTopic))
    user_data: bytes | None = wire(BYTES, nullable=0, default=None)


def read_version(data: Buffer) -> int:
    """The version of a subscription or an assignment, which may be newer than any known here."""
    if len(data) < 2:
        raise MalformedMessage("a subscription or assignment is too short for its version")
    version: int = unpack_from(">h", data)[0]
    if version < 0:
        raise MalformedMessage(f"a subscription or assignment cannot have version {version}")
    return version


def read_subscription(data: Buffer) -> ConsumerProtocolSubscription:
    return _read(ConsumerProtocolSubscription, data)


def read_assignment(data: Buffer) -> ConsumerProtocolAssignment:
    return _read(ConsumerProtocolAssignment, data)


def write_subscription(subscription: ConsumerProtocolSubscription, version: int = NEWEST_VERSION) -> bytes:
    return _write(subscription, version)


def write_assignment(assignment: ConsumerProtocolAssignment, version: int = NEWEST_VERSION) -> bytes:
    return _write(assignment, version)


def _read(cls: type[M], data: Buffer) -> M:
    version = min(read_version(data), layout_of(cls).versions[1])
    return decode(cls, version, data, 2, exact=False)


def _write(value: object, version: int) -> bytes:
    """Encode in this version, or in the newest known one if that is older."""
    version = min(version, layout_of(type(value)).versions[1])
    return pack(">h", version) + encode(value, version)
