"""Random ids of topics, clusters and members. Pure rooms get them as arguments."""

import uuid

from moldau.base.uuids import text_of


def fresh_id() -> uuid.UUID:
    """A random UUID. Its text never begins with a dash: command lines would take it for an option."""
    while True:
        value = uuid.uuid4()
        if not text_of(value).startswith("-"):
            return value
