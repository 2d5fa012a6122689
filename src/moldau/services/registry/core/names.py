"""Names of subjects and contexts: `orders-value`, `:.ctx:orders-value`, and `:.ctx:` for a context itself.

A context's name starts with a dot; `.` is the default one, which names leave out. The subject None is the top level:
config and mode of everything. `:.__GLOBAL:` is above all contexts.
"""

from typing import Final, NamedTuple

DEFAULT_CONTEXT: Final = "."
GLOBAL_CONTEXT: Final = ".__GLOBAL"
GLOBAL: Final = f":{GLOBAL_CONTEXT}:"
ANY_CONTEXT: Final = ":*:"
RESERVED: Final = frozenset({"__GLOBAL", "__EMPTY"})


class Subject(NamedTuple):
    context: str
    name: str

    def __str__(self) -> str:
        return self.name if self.context == DEFAULT_CONTEXT else f":{self.context}:{self.name}"


def split(text: str) -> Subject:
    """The context and the name within it."""
    if not text.startswith(":."):
        return Subject(DEFAULT_CONTEXT, text)
    context, _, name = text[1:].partition(":")
    return Subject(context, name)


def normalize(text: str) -> str:
    """The one spelling of a subject: without the default context."""
    return str(split(text))


def context_of(subject: str) -> str:
    return split(subject).context


def top_level(subject: str) -> str | None:
    """The subject of a config or mode; None for the default context, which is the top level."""
    found = split(subject)
    return None if found == Subject(DEFAULT_CONTEXT, "") else str(found)


def is_valid(subject: str, *, for_settings: bool = False) -> bool:
    """Whether a schema (or a config or mode) may have this subject."""
    context, name = split(subject)
    if any(ord(mark) < 0x20 or 0x7F <= ord(mark) < 0xA0 for mark in subject) or name in RESERVED:
        return False
    return for_settings or (bool(name) and context != GLOBAL_CONTEXT)


def within(subject: str, parent: str) -> str:
    """A subject as a schema in `parent` refers to it: without a context it is in the same one."""
    if subject.startswith(":."):
        return normalize(subject)
    return str(Subject(context_of(parent), subject))


def has_prefix(subject: str, prefix: str) -> bool:
    """Whether a subject starts with a prefix, in the prefix's context or, after `:*:`, in any."""
    if prefix.startswith(ANY_CONTEXT):
        return split(subject).name.startswith(prefix.removeprefix(ANY_CONTEXT))
    wanted, found = split(prefix), split(subject)
    return wanted.context == found.context and found.name.startswith(wanted.name)
