"""Validators of jsonschema-rs for our documents: linear or bounded regular expressions, and never a fetch."""

from functools import lru_cache
from typing import TYPE_CHECKING

from moldau.schemas.json_text import Json, JsonObject
from moldau.schemas.jsonschema.documents import BASE_URI, Documents
from moldau.schemas.jsonschema.drafts import Draft, draft_of
from moldau.schemas.schema import InvalidSchema

if TYPE_CHECKING:
    from jsonschema_rs import Validator

REGEX_BACKTRACK_LIMIT = 10_000  # steps of one match; patterns without look-around never backtrack
REGEX_SIZE_LIMIT = 1_000_000  # bytes of one compiled pattern


def compile_validator(documents: Documents, references: dict[str, Json]) -> "Validator":
    """The validator of a schema, or InvalidSchema with the path of what its draft's meta-schema refuses."""
    import jsonschema_rs

    classes = {
        Draft.DRAFT_4: jsonschema_rs.Draft4Validator,
        Draft.DRAFT_6: jsonschema_rs.Draft6Validator,
        Draft.DRAFT_7: jsonschema_rs.Draft7Validator,
        Draft.DRAFT_2019_09: jsonschema_rs.Draft201909Validator,
        Draft.DRAFT_2020_12: jsonschema_rs.Draft202012Validator,
    }
    numbers = {
        Draft.DRAFT_4: jsonschema_rs.Draft4,
        Draft.DRAFT_6: jsonschema_rs.Draft6,
        Draft.DRAFT_7: jsonschema_rs.Draft7,
        Draft.DRAFT_2019_09: jsonschema_rs.Draft201909,
        Draft.DRAFT_2020_12: jsonschema_rs.Draft202012,
    }
    draft = draft_of(documents.root)
    resources = [(uri, _bare(references[name])) for uri, name in documents.uses.items()]
    try:
        return classes[draft](
            _bare(documents.root),
            registry=jsonschema_rs.Registry(resources, draft=numbers[draft]) if resources else None,
            base_uri=BASE_URI,
            pattern_options=jsonschema_rs.FancyRegexOptions(
                backtrack_limit=REGEX_BACKTRACK_LIMIT, size_limit=REGEX_SIZE_LIMIT
            ),
            offline=True,
        )
    except jsonschema_rs.ValidationError as error:
        path = "/".join(map(str, ("#", *error.instance_path)))
        raise InvalidSchema(f"{path}: {error.message}") from None
    except (ValueError, jsonschema_rs.ReferencingError) as error:  # nested too deeply, a lone surrogate
        raise InvalidSchema(f"#: {error}") from None


def _bare(document: Json) -> JsonObject | bool:
    """The document without `$schema`: the class of the validator says the draft."""
    if isinstance(document, dict):
        return {key: value for key, value in document.items() if key != "$schema"}
    return bool(document)


@lru_cache(maxsize=1_000)
def _pattern(pattern: str) -> "Validator":
    import jsonschema_rs

    options = jsonschema_rs.FancyRegexOptions(backtrack_limit=REGEX_BACKTRACK_LIMIT, size_limit=REGEX_SIZE_LIMIT)
    return jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=options, offline=True)


def matches(pattern: str, name: str) -> bool:
    """Whether a pattern of a valid schema matches a name, as it would while payloads are validated."""
    return _pattern(pattern).is_valid(name)
