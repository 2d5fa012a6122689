"""Call: one request to the registry as a value, with readers for its query. Knows no HTTP framework."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from moldau.services.registry.core.errors import Code, RegistryError
from moldau.services.registry.core.names import ANY_CONTEXT, normalize, split, within
from moldau.services.registry.core.parsing import SchemaParser
from moldau.services.registry.core.records import Json
from moldau.services.registry.core.requests import read_version
from moldau.services.registry.core.state import RegistryState

MOST_DIGITS: Final = 10


class BadRequest(Exception):
    """A query parameter or path segment that is malformed; HTTP 400."""


def everything(_: str) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Call:
    """`sees` tells whether the caller may know of a subject."""

    state: RegistryState
    parser: SchemaParser
    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    body: Json = None
    cluster_id: str = ""
    group: str = ""
    sees: Callable[[str], bool] = everything

    # ── the query ───────────────────────────────────────────────────────────────────────────────────────────────────

    def text(self, name: str, default: str = "") -> str:
        found = self.query.get(name)
        return found[-1] if found else default

    def texts(self, name: str) -> Sequence[str]:
        return self.query.get(name, ())

    def flag(self, name: str) -> bool:
        """True for `true` in any case, as Java reads it; a name without a value counts too."""
        return name in self.query and self.text(name).strip().lower() in ("true", "")

    def number(self, name: str, default: int) -> int:
        text = self.text(name, str(default)).strip()
        digits = text.removeprefix("-")
        if not digits.isascii() or not digits.isdecimal() or len(digits) > MOST_DIGITS:
            raise BadRequest(f"The query parameter {name}={text!r} is no number.")
        return int(text)

    def page(self, found: Sequence[Json]) -> list[Json]:
        """The part of a list between `offset` and `limit`; a negative limit is none."""
        start, limit = max(self.number("offset", 0), 0), self.number("limit", -1)
        return list(found[start:] if limit < 0 else found[start : start + limit])

    # ── the path ────────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def subject(self) -> str:
        """The subject in the path, or that of its alias."""
        return resolve_alias(self.state, normalize(self.path["subject"]))

    @property
    def named_subject(self) -> str:
        """The subject in the query; after /contexts/{context}/ one of that context, or the context itself."""
        text, context = self.text("subject"), self.path.get("subject", "")
        return normalize(within(text, context) if context else text)

    @property
    def prefix(self) -> str:
        """What subjects of a list begin with: all, if the query does not say, or those of the path's context."""
        return self.text("subjectPrefix", self.path.get("subject", ANY_CONTEXT))

    @property
    def version(self) -> int:
        return read_version(self.path["version"])

    @property
    def schema_id(self) -> int:
        text = self.path["id"]
        if not text.isascii() or not text.isdecimal() or len(text) > MOST_DIGITS:
            raise BadRequest(f"{text!r} is no schema id: ids are whole numbers.")
        return int(text)


def resolve_alias(state: RegistryState, subject: str) -> str:
    alias = state.configs.get(subject, {}).get("alias")
    return normalize(within(alias, subject)) if isinstance(alias, str) and alias else subject


def subject_using_contexts(state: RegistryState, subject: str, *, deleted: bool) -> str:
    """The subject, or if the default context has none of this name, the one of the first context that has."""
    if state.versions(subject, deleted=deleted) or subject.startswith(":"):
        return subject
    for context in state.known_contexts():
        other = f":{context}:{subject}"
        if state.versions(normalize(other), deleted=deleted):
            return normalize(other)
    return subject


def require_context(text: str) -> str:
    if not text.startswith("."):
        raise RegistryError(Code.INVALID_SUBJECT, f"The context '{text}' is invalid: its name starts with a dot.")
    return split(f":{text}:").context
