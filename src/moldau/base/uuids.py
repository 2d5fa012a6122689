"""UUIDs as Kafka writes them in text: 22 characters of URL-safe base64 without padding."""

import base64
import re
import uuid

ZERO = uuid.UUID(int=0)  # no id, on the wire
RESERVED = frozenset((ZERO, uuid.UUID(int=1)))  # 1 is the id of Kafka's metadata log; neither is a topic's id

_TEXT = re.compile(r"[A-Za-z0-9_-]{22}")


def text_of(value: uuid.UUID) -> str:
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_of(text: str) -> uuid.UUID:
    """Raises ValueError for anything but such a text."""
    if not _TEXT.fullmatch(text):
        raise ValueError(f"not a UUID in base64: {text!r}")
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))
