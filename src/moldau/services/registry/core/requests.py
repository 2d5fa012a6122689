"""Bodies of requests as values. Whatever is wrong in a body is a RegistryError that names the field."""

from dataclasses import dataclass, replace
from typing import Final

from moldau.schemas import Reference
from moldau.services.registry.core.errors import Code, RegistryError, invalid_schema
from moldau.services.registry.core.records import AVRO, Content, Json, JsonObject, UnknownRecord, read_references

NO_ID: Final = -1
ANY_VERSION: Final = 0
LATEST: Final = -1
MAX_NUMBER: Final = 2**31 - 1
MIGRATIONS: Final = frozenset({"UPGRADE", "DOWNGRADE", "UPDOWN"})
TRANSFORMS: Final = frozenset({"WRITE", "READ", "WRITEREAD"})
RULES: Final = {"migrationRules": MIGRATIONS, "domainRules": TRANSFORMS, "encodingRules": TRANSFORMS}


@dataclass(frozen=True, slots=True)
class SchemaRequest:
    """A schema to register, look up or check. An empty text stands for that of the latest version."""

    content: Content
    version: int = ANY_VERSION
    id: int = NO_ID

    @property
    def empty(self) -> bool:
        return not self.content.schema.strip()

    def with_content(self, content: Content) -> "SchemaRequest":
        return replace(self, content=content)


def read_schema_request(body: Json) -> SchemaRequest:
    fields = object_of(body)
    schema = fields.get("schema")
    if not isinstance(schema, str | None):
        raise invalid_schema("the field schema is no text; a schema is sent as a JSON string")
    schema_type = fields.get("schemaType") or AVRO
    if not isinstance(schema_type, str):
        raise invalid_schema("the field schemaType is no text")
    try:
        references: tuple[Reference, ...] = read_references(fields.get("references"))
    except UnknownRecord as problem:
        raise invalid_schema(f"references: {problem}") from None
    content = Content(
        schema_type, schema or "", references, read_object(fields, "metadata"), read_rule_set(fields, "ruleSet")
    )
    version, schema_id = read_number(fields, "version"), read_number(fields, "id")
    return SchemaRequest(
        content, ANY_VERSION if version is None else version, NO_ID if schema_id is None else schema_id
    )


def object_of(body: Json) -> JsonObject:
    if not isinstance(body, dict):
        raise invalid_schema("the request body is no JSON object")
    return body


def read_object(fields: JsonObject, name: str) -> JsonObject | None:
    value = fields.get(name)
    if not isinstance(value, dict | None):
        raise invalid_schema(f"the field {name} is no JSON object")
    return value


def read_number(fields: JsonObject, name: str) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not -1 <= value <= MAX_NUMBER:
        raise invalid_schema(f"the field {name} is no number from -1 to {MAX_NUMBER}")
    return value


def read_rule_set(fields: JsonObject, name: str) -> JsonObject | None:
    """A rule set whose rules have a name and a type, each name once, and modes that fit their kind."""
    rule_set = read_object(fields, name)
    names: set[str] = set()
    for kind, modes in RULES.items():
        rules = (rule_set or {}).get(kind)
        if rules is None:
            continue
        if not isinstance(rules, list):
            raise _invalid_rules(f"{kind} is no list")
        for rule in rules:
            rule_name = rule.get("name") if isinstance(rule, dict) else None
            if not isinstance(rule, dict) or not isinstance(rule_name, str) or not rule_name:
                raise _invalid_rules(f"a rule of {kind} has no name")
            if rule_name in names:
                raise _invalid_rules(f"two rules have the name {rule_name!r}")
            names.add(rule_name)
            if not isinstance(rule.get("type"), str):
                raise _invalid_rules(f"rule {rule_name!r} has no type")
            if rule.get("mode") not in modes:
                raise _invalid_rules(f"rule {rule_name!r} of {kind} needs a mode of {', '.join(sorted(modes))}")
    return rule_set


def _invalid_rules(reason: str) -> RegistryError:
    return RegistryError(Code.INVALID_RULE_SET, f"Invalid rule set: {reason}.")


def read_version(text: str) -> int:
    """A version in a path: a positive number; -1 and `latest` mean the latest."""
    if text.strip().lower() == "latest":
        return LATEST
    try:
        number = int(text.strip())
    except ValueError:
        number = 0
    if (number != LATEST and not 1 <= number <= MAX_NUMBER) or len(text) > len(str(MAX_NUMBER)) + 2:
        message = f"The specified version '{text}' is not a valid version id. Give 1 to {MAX_NUMBER}, or latest."
        raise RegistryError(Code.INVALID_VERSION, message)
    return number
