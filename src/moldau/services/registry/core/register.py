"""Registering a schema, looking one up, and checking compatibility: what a subject and its content decide together."""

from moldau.schemas import CompatibilityLevel, ParsedSchema, check_compatibility, normalized_references
from moldau.services.registry.core.decision import Decision, mode_error, require_writable
from moldau.services.registry.core.errors import Code, RegistryError, invalid_schema, not_permitted
from moldau.services.registry.core.names import DEFAULT_CONTEXT, context_of, is_valid
from moldau.services.registry.core.parsing import SchemaParser
from moldau.services.registry.core.records import (
    Content,
    ContextKey,
    Json,
    JsonObject,
    Record,
    StoredSchema,
)
from moldau.services.registry.core.requests import ANY_VERSION, LATEST, NO_ID, SchemaRequest
from moldau.services.registry.core.scope import (
    Mode,
    compatibility_level,
    config_in_scope,
    is_set,
    merge_metadata,
    merge_rule_sets,
    mode_in_scope,
)
from moldau.services.registry.core.state import RegistryState

OWN_VERSION = "confluent:version"  # a property with the version's own number


def register(
    state: RegistryState, parser: SchemaParser, subject: str, request: SchemaRequest, *, normalize: bool, force: bool
) -> Decision:
    """A new version, or the one that has this content already."""
    if not is_valid(subject):
        raise RegistryError(Code.INVALID_SUBJECT, f"The subject '{subject}' is invalid. Choose another name.")
    mode = _require_mode(state, subject, request)
    config = config_in_scope(state, subject)
    normalize = normalize or is_set(config, "normalize")
    versions = state.versions(subject)
    latest = versions[-1] if versions else None
    if request.empty and latest is None:
        raise invalid_schema("the schema is empty")
    if not request.empty and not _has_policy(config):
        sent, _ = canonical(state, parser, subject, request.content, normalize=normalize)
        found = _same(versions, sent)
        if found is not None and _accepts(request, found):
            return Decision(registered(found))
    if not mode.takes_ids:
        request = request.with_content(populated(request, latest, config, state.next_version(subject)))
    content, parsed = canonical(state, parser, subject, request.content, normalize=normalize)
    found = _same(versions, content)
    if found is not None and _accepts(request, found):
        return Decision(registered(found))
    if not mode.takes_ids and not force:
        _require_compatible(state, parser, config, parsed, content, versions)
    return _new_version(state, subject, request, content, mode)


def _require_mode(state: RegistryState, subject: str, request: SchemaRequest) -> Mode:
    require_writable(state, subject)
    mode = mode_in_scope(state, subject)
    if request.id != NO_ID and not mode.takes_ids:
        raise mode_error(subject, "is not in import mode; only then a schema may bring its id")
    if request.id == NO_ID and mode is not Mode.READWRITE:
        raise mode_error(subject, "is not in read-write mode")
    return mode


def _accepts(request: SchemaRequest, found: StoredSchema) -> bool:
    """Whether a stored version is the one that the request asks for."""
    same_id = request.id in (NO_ID, found.id)
    return same_id and request.version in (ANY_VERSION, LATEST, found.version)


def _new_version(state: RegistryState, subject: str, request: SchemaRequest, content: Content, mode: Mode) -> Decision:
    following = state.next_version(subject)
    version = request.version if request.version > 0 else following
    if version != following and not mode.takes_ids:
        raise invalid_schema(f"version {version} is not one more than the previous version; send {following} or none")
    schema_id = _choose_id(state, subject, request, content)
    stored = StoredSchema(subject, version, schema_id, content, content.digest())
    records = []
    context = context_of(subject)
    if context != DEFAULT_CONTEXT and context not in state.contexts:
        records.append(Record(ContextKey(context), {"tenant": "default", "context": context}))
    for old in state.versions(subject, deleted=True):
        replaced = old.deleted and old.id == schema_id and old.version < version
        if replaced and not state.referrers(old.key, deleted=True):
            records.append(Record(old.key, None))
    return Decision(registered(stored), (*records, Record(stored.key, stored)))


def _choose_id(state: RegistryState, subject: str, request: SchemaRequest, content: Content) -> int:
    context = context_of(subject)
    known = state.id_of(context, content)
    if request.id == NO_ID:
        return state.next_id(context) if known is None else known
    others = [each for each in state.with_id(context, request.id) if each.md5 != content.digest()]
    if others:
        raise not_permitted(f"Overwrite new schema with id {request.id} in context {context} is not permitted.")
    return request.id


def registered(stored: StoredSchema) -> JsonObject:
    """The answer to a registration."""
    return {"id": stored.id, "version": stored.version, "guid": stored.guid}


# ── content ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def canonical(
    state: RegistryState, parser: SchemaParser, subject: str, content: Content, *, normalize: bool
) -> tuple[Content, ParsedSchema]:
    """The content as it is stored, and the schema parsed."""
    parsed = parser.parse(state, subject, content)
    references = normalized_references(content.references) if normalize else content.references
    text = parsed.normalized if normalize else parsed.text
    return Content(content.schema_type, text, references, content.metadata, content.rule_set), parsed


def populated(request: SchemaRequest, latest: StoredSchema | None, config: JsonObject, version: int) -> Content:
    """The content with what a client may leave out: text, metadata and rules of the latest version and config."""
    content, before = request.content, None if latest is None else latest.content
    if request.empty and before is not None:
        schema_type, schema, references = before.schema_type, before.schema, before.references
    else:
        schema_type, schema, references = content.schema_type, content.schema, content.references
    metadata = content.metadata if content.metadata is not None or before is None else before.metadata
    rule_set = content.rule_set if content.rule_set is not None or before is None else before.rule_set
    metadata = merge_metadata(config.get("defaultMetadata"), metadata, config.get("overrideMetadata"))
    rule_set = merge_rule_sets(config.get("defaultRuleSet"), rule_set, config.get("overrideRuleSet"))
    properties = (metadata or {}).get("properties")
    numbered = isinstance(properties, dict) and OWN_VERSION in properties
    if request.version != ANY_VERSION or numbered:
        own: JsonObject = {"properties": {OWN_VERSION: str(version)}}
        metadata = merge_metadata(metadata, own, None)
    return Content(schema_type, schema, references, metadata, rule_set)


def _has_policy(config: JsonObject) -> bool:
    return any(
        config.get(name) for name in ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")
    )


def _same(versions: list[StoredSchema], content: Content) -> StoredSchema | None:
    """The newest version with this content."""
    digest = content.digest()
    return next((each for each in reversed(versions) if each.md5 == digest), None)


def look_up(
    state: RegistryState,
    parser: SchemaParser,
    subject: str,
    request: SchemaRequest,
    *,
    normalize: bool,
    deleted: bool,
) -> StoredSchema | None:
    """The version of a subject with this content. A request without metadata and rules finds one with any."""
    normalize = normalize or is_set(config_in_scope(state, subject), "normalize")
    versions = state.versions(subject, deleted=deleted)
    if request.empty:
        raise invalid_schema("the schema is empty")
    content, parsed = canonical(state, parser, subject, request.content, normalize=normalize)
    found = _same(versions, content)
    if found is not None or content.metadata is not None or content.rule_set is not None:
        return found
    for each in reversed(versions):
        other = each.content
        if other.schema_type != content.schema_type:
            continue
        if (other.schema, other.references) == (content.schema, content.references):
            return each
        if normalize and parser.parse(state, subject, other).normalized == parsed.normalized:
            return each
    return None


# ── compatibility ───────────────────────────────────────────────────────────────────────────────────────────────────


def incompatibilities(
    state: RegistryState,
    parser: SchemaParser,
    subject: str,
    request: SchemaRequest,
    earlier: list[StoredSchema],
) -> list[str]:
    """What forbids a schema after these versions, the newest last, by the config of the subject."""
    config = config_in_scope(state, subject)
    latest = state.latest(subject)
    if request.empty and latest is None:
        raise invalid_schema("the schema is empty")
    content = populated(request, latest, config, state.next_version(subject))
    parsed = parser.parse(state, subject, content)
    return _differences(state, parser, config, parsed, content, earlier)


def _require_compatible(
    state: RegistryState,
    parser: SchemaParser,
    config: JsonObject,
    parsed: ParsedSchema,
    content: Content,
    earlier: list[StoredSchema],
) -> None:
    problems = _differences(state, parser, config, parsed, content, earlier)
    if problems:
        subject = earlier[-1].subject
        message = f'Schema being registered is incompatible with an earlier schema for subject "{subject}", details: '
        raise RegistryError(Code.INCOMPATIBLE_SCHEMA, message + str(problems))


def _differences(
    state: RegistryState,
    parser: SchemaParser,
    config: JsonObject,
    parsed: ParsedSchema,
    content: Content,
    earlier: list[StoredSchema],
) -> list[str]:
    level = compatibility_level(config)
    group = config.get("compatibilityGroup")
    if isinstance(group, str):
        mine = _group_of(content, group)
        earlier = [each for each in earlier if _group_of(each.content, group) == mine]
    if level is CompatibilityLevel.NONE or not earlier:
        return []
    compared = earlier if level.transitive else earlier[-1:]
    before = [parser.parse(state, each.subject, each.content) for each in compared]
    found = check_compatibility(level, parsed, before)
    problems = [f"{{rule: '{each.rule}', path: '{each.path}', message: '{each.message}'}}" for each in found]
    return [*problems, f"{{compatibility: '{level}'}}"] if problems else []


def _group_of(content: Content, name: str) -> Json:
    """The value of the property that separates schemas into groups, of which each is compatible within itself."""
    properties = (content.metadata or {}).get("properties")
    return properties.get(name) if isinstance(properties, dict) else None
