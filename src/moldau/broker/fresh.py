"""Random ids, for topics and clusters and members. The pure rooms get them as arguments."""

import uuid

from moldau.base.uuids import text_of


def fresh_id() -> uuid.UUID:
    """Its text never begins with a dash: command lines would see an option."""
    while True:
        value = uuid.uuid4()
        if not text_of(value).startswith("-"):
            return value
