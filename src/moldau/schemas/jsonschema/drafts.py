"""Drafts of JSON Schema, and which of them a schema is written in."""

from enum import Enum

from moldau.schemas.json_text import Json


class Draft(Enum):
    """A draft, by the year or number in its URI."""

    DRAFT_4 = "draft-04"
    DRAFT_6 = "draft-06"
    DRAFT_7 = "draft-07"
    DRAFT_2019_09 = "draft/2019-09"
    DRAFT_2020_12 = "draft/2020-12"

    @property
    def id_keyword(self) -> str:
        return "id" if self is Draft.DRAFT_4 else "$id"


def draft_of(document: Json) -> Draft:
    """The draft that `$schema` names. Draft 7 without one, or with one that is not known, as registries have it."""
    named = document.get("$schema") if isinstance(document, dict) else None
    if isinstance(named, str):
        for draft in Draft:
            if named.partition("://")[2].rstrip("#").removesuffix("/schema") == f"json-schema.org/{draft.value}":
                return draft
    return Draft.DRAFT_7
