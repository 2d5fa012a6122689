"""Endpoints that only read. Each takes a Call and returns its answer, or raises RegistryError."""

from moldau.schemas import SchemaType
from moldau.services.registry.api.call import Call, subject_using_contexts
from moldau.services.registry.core.errors import schema_not_found, subject_not_found, version_not_found
from moldau.services.registry.core.names import context_of, has_prefix, normalize, split, top_level, within
from moldau.services.registry.core.parsing import SchemaParser
from moldau.services.registry.core.records import Json, JsonObject, StoredSchema, references_json
from moldau.services.registry.core.register import incompatibilities, look_up
from moldau.services.registry.core.requests import LATEST, read_schema_request
from moldau.services.registry.core.settings import show_config, show_mode
from moldau.services.registry.core.state import RegistryState, all_schemas

QUALIFIED = "qualified"


def root(_: Call) -> Json:
    return {}


# ── schemas by id ───────────────────────────────────────────────────────────────────────────────────────────────────


def list_schemas(call: Call) -> Json:
    prefix, deleted = call.prefix, call.flag("deleted")
    rule_type = call.text("ruleType")
    found = []
    for stored in all_schemas(call.state, deleted=deleted):
        if not has_prefix(stored.subject, prefix) or not call.sees(stored.subject):
            continue
        if rule_type and not has_rule_of(stored, rule_type):
            continue
        found.append(stored)
    if call.flag("latestOnly"):
        found = list({stored.subject: stored for stored in found}.values())
    return call.page([describe(stored) for stored in found])


def has_rule_of(stored: StoredSchema, rule_type: str) -> bool:
    kinds = (stored.content.rule_set or {}).values()
    rules = [rule for kind in kinds if isinstance(kind, list) for rule in kind]
    return any(isinstance(rule, dict) and rule.get("type") == rule_type for rule in rules)


def list_types(_: Call) -> Json:
    return [SchemaType.JSON.value, SchemaType.PROTOBUF.value, SchemaType.AVRO.value]


def schema_by_id(call: Call) -> Json:
    stored = _by_id(call)
    answer = content_json(call, stored)
    if "subject" in call.query:
        answer = {"subject": stored.subject, "version": stored.version, **answer}
    if call.flag("fetchMaxId"):
        answer["maxId"] = call.state.highest_id(context_of(stored.subject))
    return answer


def schema_text_by_id(call: Call) -> str:
    return formatted(call, _by_id(call))


def _by_id(call: Call) -> StoredSchema:
    found = _versions_with_id(call, deleted=True)
    if not found:
        raise schema_not_found(call.schema_id)
    return found[0]


def _versions_with_id(call: Call, *, deleted: bool) -> list[StoredSchema]:
    """Versions with the id in the path, in the context of the query's subject, or in any that has this subject."""
    subject = call.named_subject
    name = split(subject).name
    found = call.state.with_id(context_of(subject), call.schema_id)
    if not found and name and context_of(subject) == ".":
        for context in call.state.known_contexts():
            others = call.state.with_id(context, call.schema_id)
            found = found or [each for each in others if split(each.subject).name == name]
    found = [each for each in found if call.sees(each.subject) and (deleted or not each.deleted)]
    return sorted(found, key=lambda each: each.subject != subject)


def subjects_of_id(call: Call) -> Json:
    found = _listed_with_id(call)
    return call.page(list(dict.fromkeys(each.subject for each in found)))


def versions_of_id(call: Call) -> Json:
    return call.page([{"subject": each.subject, "version": each.version} for each in _listed_with_id(call)])


def _listed_with_id(call: Call) -> list[StoredSchema]:
    if not _versions_with_id(call, deleted=True):
        raise schema_not_found(call.schema_id)
    name = split(call.named_subject).name
    found = _versions_with_id(call, deleted=call.flag("deleted"))
    return [each for each in found if not name or split(each.subject).name == name]


def schema_by_guid(call: Call) -> Json:
    return content_json(call, _with_guid(call)[0])


def ids_of_guid(call: Call) -> Json:
    found = {(context_of(each.subject), each.id) for each in _with_guid(call)}
    return [{"context": context, "id": schema_id} for context, schema_id in sorted(found)]


def _with_guid(call: Call) -> list[StoredSchema]:
    guid = call.path["guid"]
    try:
        digest = bytes.fromhex(guid.replace("-", ""))
    except ValueError:
        raise schema_not_found(guid) from None
    found = [each for each in call.state.with_digest(digest) if call.sees(each.subject)]
    if not found:
        raise schema_not_found(guid)
    return found


# ── subjects and versions ───────────────────────────────────────────────────────────────────────────────────────────


def list_subjects(call: Call) -> Json:
    prefix = call.prefix
    found: list[Json] = []
    for subject in call.state.subjects():
        if has_prefix(subject, prefix) and call.sees(subject):
            live = bool(call.state.versions(subject))
            if (not live) if call.flag("deletedOnly") else (live or call.flag("deleted")):
                found.append(subject)
    return call.page(found)


def list_versions(call: Call) -> Json:
    subject = call.subject
    with_deleted = call.flag("deleted") or call.flag("deletedOnly") or call.flag("deletedAsNegative")
    every = call.state.versions(subject, deleted=with_deleted)
    if not every:
        raise subject_not_found(subject)
    if call.flag("deletedAsNegative"):
        return call.page([-each.version if each.deleted else each.version for each in every])
    if call.flag("deletedOnly"):
        every = [each for each in every if each.deleted]
    return call.page([each.version for each in every])


def find_version(call: Call, *, deleted: bool) -> StoredSchema:
    subject = subject_using_contexts(call.state, call.subject, deleted=deleted)
    every = call.state.versions(subject, deleted=deleted)
    if not every:
        raise subject_not_found(subject)
    number = call.version
    found = every[-1] if number == LATEST else next((each for each in every if each.version == number), None)
    if found is None:
        raise version_not_found(number)
    return found


def version(call: Call) -> Json:
    stored = find_version(call, deleted=call.flag("deleted"))
    return {**describe(stored), **content_json(call, stored)}


def version_text(call: Call) -> str:
    return formatted(call, find_version(call, deleted=call.flag("deleted")))


def referenced_by(call: Call) -> Json:
    stored = find_version(call, deleted=True)
    found = call.state.referrers(stored.key, deleted=call.flag("deleted"))
    return call.page(sorted({each.id for each in found}))


def latest_with_metadata(call: Call) -> Json:
    subject = subject_using_contexts(call.state, call.subject, deleted=call.flag("deleted"))
    wanted = dict(zip(call.texts("key"), call.texts("value"), strict=False))
    every = call.state.versions(subject, deleted=call.flag("deleted"))
    if not every:
        raise subject_not_found(subject)
    for stored in reversed(every):
        properties = (stored.content.metadata or {}).get("properties")
        held = properties if isinstance(properties, dict) else {}
        if all(held.get(name) == value for name, value in wanted.items()):
            return {**describe(stored), **content_json(call, stored)}
    raise schema_not_found()


def look_up_schema(call: Call) -> Json:
    request, deleted = read_schema_request(call.body), call.flag("deleted")
    subject = call.subject
    candidates = [subject]
    if not subject.startswith(":"):
        candidates += [normalize(f":{context}:{subject}") for context in call.state.known_contexts()]
    if not any(call.state.versions(each, deleted=deleted) for each in candidates):
        raise subject_not_found(subject)
    for each in dict.fromkeys(candidates):
        if call.state.versions(each, deleted=deleted):
            normalizes = call.flag("normalize")
            stored = look_up(call.state, call.parser, each, request, normalize=normalizes, deleted=deleted)
            if stored is not None:
                return {**describe(stored), **content_json(call, stored)}
    raise schema_not_found()


# ── compatibility, config, mode, contexts ───────────────────────────────────────────────────────────────────────────


def check_compatibility(call: Call) -> Json:
    subject = call.subject
    request = read_schema_request(call.body)
    earlier = call.state.versions(subject)
    if "version" in call.path:
        number = call.version
        if not earlier:
            raise subject_not_found(subject)
        earlier = earlier[-1:] if number == LATEST else [each for each in earlier if each.version == number]
        if not earlier:
            raise version_not_found(number)
    problems = incompatibilities(call.state, call.parser, subject, request, earlier)
    answer: JsonObject = {"is_compatible": not problems}
    if call.flag("verbose"):
        answer["messages"] = list(problems)
    return answer


def settings_subject(call: Call) -> str | None:
    return top_level(call.path["subject"]) if "subject" in call.path else None


def config(call: Call) -> Json:
    return show_config(call.state, settings_subject(call), in_scope=call.flag("defaultToGlobal"))


def mode(call: Call) -> Json:
    return show_mode(call.state, settings_subject(call), in_scope=call.flag("defaultToGlobal"))


def list_contexts(call: Call) -> Json:
    return call.page(list(call.state.known_contexts()))


def metadata_id(call: Call) -> Json:
    clusters: JsonObject = {"kafka-cluster": call.cluster_id, "schema-registry-cluster": call.group}
    return {"id": "", "scope": {"path": [], "clusters": clusters}}


# ── answers ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def describe(stored: StoredSchema) -> JsonObject:
    """A version with all that belongs to it."""
    content = stored.content
    found: JsonObject = {"subject": stored.subject, "version": stored.version, "id": stored.id, "guid": stored.guid}
    found["schemaType"] = content.schema_type
    if content.references:
        found["references"] = references_json(content.references)
    if content.metadata is not None:
        found["metadata"] = content.metadata
    if content.rule_set is not None:
        found["ruleSet"] = content.rule_set
    found["schema"] = content.schema
    if stored.deleted:
        found["deleted"] = True
    return found


def content_json(call: Call, stored: StoredSchema) -> JsonObject:
    """The content alone, in the formats that the query asks for."""
    found = describe(stored)
    for name in ("subject", "version", "id"):
        del found[name]
    found["schema"] = formatted(call, stored)
    references = stored.content.references
    if references and call.text("referenceFormat").lower() == QUALIFIED:
        qualified: list[Json] = [
            {"name": each.name, "subject": within(each.subject, stored.subject), "version": each.version}
            for each in references
        ]
        found["references"] = qualified
    return found


def formatted(call: Call, stored: StoredSchema) -> str:
    style = call.text("format").strip()
    if not style:
        return stored.content.schema
    return parsed_text(call.state, call.parser, stored, style)


def parsed_text(state: RegistryState, parser: SchemaParser, stored: StoredSchema, style: str) -> str:
    return parser.parse(state, stored.subject, stored.content).formatted(style)
