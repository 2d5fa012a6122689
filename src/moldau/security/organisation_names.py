"""Names of organisations: what a member calls `shop.orders` the cluster calls `acme.shop.orders`. Knows no message.

Topics, groups and transactional ids are renamed alike. Other names of the cluster do not exist for a
member, and a topic id of others is as unknown as one that was never given.
"""

import re
from collections.abc import Callable
from typing import Final
from uuid import UUID

from moldau.wire.declare import NAME_PATTERN, Name
from moldau.wire.primitives import ZERO_UUID

_HIDDEN: Final = (1 << 128) - 1
# The parts of a regular expression that may hold a `^`: escaped characters, character classes, and `^` itself.
_ANCHORS: Final = re.compile(r"\\A|\\.|\[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\]|\^", re.DOTALL)


class OrganisationNames:
    """The prefix of an organisation's names. `owns` tells its topic ids, `valid` a regular expression of RE2."""

    def __init__(self, organisation: str, owns: Callable[[UUID], bool], valid: Callable[[str], bool]) -> None:
        self.prefix = f"{organisation}."
        self.pattern = (f"{re.escape(self.prefix)}(?:", ")")  # around a member's regular expression
        self.owns = owns
        self.valid = valid

    def topic_id(self, topic_id: UUID) -> UUID:
        """The topic id as the other side sees it: that of another organisation is one that no topic has."""
        if topic_id == ZERO_UUID or self.owns(topic_id):
            return topic_id
        return UUID(int=topic_id.int ^ _HIDDEN)


class ToCluster:
    """A renaming of requests: from the organisation's names to the cluster's."""

    __slots__ = ("_names", "topic_id")

    def __init__(self, names: OrganisationNames) -> None:
        self._names = names
        self.topic_id = names.topic_id

    def name(self, kind: Name, name: str, /) -> str:
        if not name:  # the request has an id instead, or means none
            return name
        return self._pattern(name) if kind is NAME_PATTERN else f"{self._names.prefix}{name}"

    def text(self, text: str, /) -> str:
        return text

    def _pattern(self, pattern: str) -> str:
        """A regular expression for whole names of the cluster that matches what the member's matches of its own names.

        An invalid one stays as it is, to be refused: in brackets `a)|(.*` would be valid, and match names of others.
        """
        if not self._names.valid(pattern):
            return pattern
        before, after = self._names.pattern
        return f"{before}{_ANCHORS.sub(_without_anchor, pattern)}{after}"


class ToOrganisation:
    """A renaming of responses: from the cluster's names to the organisation's. Names of others are left out."""

    __slots__ = ("_mentions", "_names", "topic_id")

    def __init__(self, names: OrganisationNames) -> None:
        self._names = names
        self.topic_id = names.topic_id
        self._mentions = re.compile(rf"(?<![\w.-]){re.escape(names.prefix)}")

    def name(self, kind: Name, name: str, /) -> str | None:
        if kind is NAME_PATTERN:
            before, after = self._names.pattern
            return name[len(before) : -len(after)] if name.startswith(before) else name
        if name.startswith(self._names.prefix):
            return name[len(self._names.prefix) :]
        return None if name else name

    def text(self, text: str, /) -> str:
        return self._mentions.sub("", text)


def _without_anchor(found: re.Match[str]) -> str:
    """Anchors stand for the beginning of the member's name, which is in the middle of the cluster's."""
    return "" if found[0] in ("^", r"\A") else found[0]
