"""UUIDs as Kafka writes them in text: 22 characters of URL-safe base64 without padding."""

import base64
import binascii
import uuid

ZERO = uuid.UUID(int=0)  # on the wire: no id
RESERVED = frozenset((ZERO, uuid.UUID(int=1)))  # 1 is Apache Kafka's own metadata log; neither is ever a topic's id


def text_of(value: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_of(text: str) -> uuid.UUID:
    """Raises ValueError for anything but such a text."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(f"not a UUID in base64: {text!r}") from error
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"not a UUID in base64: {text!r}")
    return uuid.UUID(bytes=raw)
