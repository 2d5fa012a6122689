"""Config and mode of subjects, contexts and the top level: showing, changing and deleting them."""

from typing import Final

from moldau.schemas import CompatibilityLevel
from moldau.services.registry.core.decision import Decision, require_writable
from moldau.services.registry.core.errors import Code, RegistryError, not_permitted, subject_not_found
from moldau.services.registry.core.names import GLOBAL, has_prefix, is_valid, split
from moldau.services.registry.core.records import ClearSubjectKey, ConfigKey, Json, JsonObject, ModeKey, Record
from moldau.services.registry.core.remove import reference_exists
from moldau.services.registry.core.requests import object_of, read_object, read_rule_set
from moldau.services.registry.core.scope import LEVEL, Mode, config_in_scope, mode_in_scope, own_config
from moldau.services.registry.core.state import RegistryState

FLAGS: Final = ("normalize", "validateFields", "validateNewSchemas", "validateRules")
TEXTS: Final = ("alias", "aliasForDeks", "compatibilityGroup", "compatibilityPolicy")
METADATA: Final = ("defaultMetadata", "overrideMetadata")
RULE_SETS: Final = ("defaultRuleSet", "overrideRuleSet")


# ── config ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_config(state: RegistryState, subject: str | None, *, in_scope: bool) -> JsonObject:
    found = config_in_scope(state, subject) if in_scope else own_config(state, subject)
    if found is None:
        message = f"Subject '{subject}' does not have subject-level compatibility configured"
        raise RegistryError(Code.NO_SUBJECT_CONFIG, message)
    return found


def put_config(state: RegistryState, subject: str | None, body: Json) -> Decision:
    """Change the settings that the body has; null takes one back."""
    if subject is not None and not is_valid(subject, for_settings=True):
        raise RegistryError(Code.INVALID_SUBJECT, f"The subject '{subject}' is invalid. Choose another name.")
    require_writable(state, subject)
    changes = read_config(body)
    config = {**state.configs.get(subject, {}), **changes}
    config = {name: value for name, value in config.items() if value is not None}
    value: JsonObject = config if subject is None else {"subject": subject, **config}
    return Decision(_as_request(config), (Record(ConfigKey(subject), value),))


def read_config(body: Json) -> JsonObject:
    """The settings in a body, by the names that records have."""
    fields = object_of(body)
    found: JsonObject = {}
    given = fields.get("compatibility", fields.get(LEVEL))
    if given is not None:
        found[LEVEL] = read_level(given)
    elif "compatibility" in fields or LEVEL in fields:
        found[LEVEL] = None
    for name in FLAGS:
        if name in fields:
            if not isinstance(fields[name], bool | None):
                raise RegistryError(Code.INVALID_COMPATIBILITY_LEVEL, f"The config {name} is not true or false.")
            found[name] = fields[name]
    for name in TEXTS:
        if name in fields:
            if not isinstance(fields[name], str | None):
                raise RegistryError(Code.INVALID_COMPATIBILITY_LEVEL, f"The config {name} is no text.")
            found[name] = fields[name] or None
    for name in METADATA:
        if name in fields:
            found[name] = read_object(fields, name)
    for name in RULE_SETS:
        if name in fields:
            found[name] = read_rule_set(fields, name)
    return found


def read_level(value: Json) -> str:
    try:
        return CompatibilityLevel(str(value).upper()).value
    except ValueError:
        message = f"Invalid compatibility level. Valid values are {', '.join(CompatibilityLevel).lower()}."
        raise RegistryError(Code.INVALID_COMPATIBILITY_LEVEL, message) from None


def _as_request(config: JsonObject) -> JsonObject:
    return {"compatibility" if name == LEVEL else name: value for name, value in config.items()}


def delete_config(state: RegistryState, subject: str | None) -> Decision:
    """Answers with the config deleted."""
    found = own_config(state, subject)
    if found is None:
        raise subject_not_found(str(subject))
    require_writable(state, subject)
    records = (Record(ConfigKey(subject), None),) if subject in state.configs else ()
    return Decision(found, records)


# ── mode ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def show_mode(state: RegistryState, subject: str | None, *, in_scope: bool) -> JsonObject:
    if in_scope or subject in (None, GLOBAL):
        return {"mode": mode_in_scope(state, subject).value if in_scope else _top_mode(state, subject)}
    if subject not in state.modes:
        message = f"Subject '{subject}' does not have subject-level mode configured"
        raise RegistryError(Code.NO_SUBJECT_MODE, message)
    return {"mode": state.modes[subject]}


def _top_mode(state: RegistryState, subject: str | None) -> str:
    return state.modes.get(subject, Mode.READWRITE.value)


def put_mode(state: RegistryState, subject: str | None, body: Json, *, force: bool) -> Decision:
    """IMPORT needs a subject without schemas, or force."""
    if subject is not None and not is_valid(subject, for_settings=True):
        raise RegistryError(Code.INVALID_SUBJECT, f"The subject '{subject}' is invalid. Choose another name.")
    mode = _read_mode(object_of(body).get("mode"))
    if mode is Mode.FORWARD and subject != GLOBAL:
        raise RegistryError(Code.INVALID_MODE, f"Forward mode is only for all contexts together: PUT /mode/{GLOBAL}")
    records: list[Record] = []
    if mode is Mode.IMPORT and mode_in_scope(state, subject) is not Mode.IMPORT and not force:
        records += _clear_for_import(state, subject)
    value: JsonObject = {"subject": subject, "mode": mode.value} if subject is not None else {"mode": mode.value}
    return Decision({"mode": mode.value}, (*records, Record(ModeKey(subject), value)))


def _read_mode(value: Json) -> Mode:
    try:
        return Mode(str(value).upper())
    except ValueError:
        message = f"Invalid mode {value!r}. Valid values are {', '.join(Mode)}."
        raise RegistryError(Code.INVALID_MODE, message) from None


def _clear_for_import(state: RegistryState, subject: str | None) -> list[Record]:
    """Deleted schemas would collide with the ids that come."""
    concerned = [each for each in state.subjects() if concerns(each, subject)]
    if any(state.versions(each) for each in concerned):
        raise not_permitted("Cannot import since found existing subjects. Delete them, or set force=true.")
    gone = [stored for each in concerned for stored in state.versions(each, deleted=True)]
    for stored in gone:
        referrers = [each for each in state.referrers(stored.key, deleted=True) if each not in gone]
        if referrers:
            raise reference_exists(stored.key, referrers[0])
    cleared: JsonObject = {} if subject is None else {"subject": subject}
    return [*(Record(stored.key, None) for stored in gone), Record(ClearSubjectKey(subject), cleared)]


def concerns(subject: str, level: str | None) -> bool:
    """Whether a subject is the one that a setting is for, or one of its context."""
    if level == GLOBAL:
        return True
    if level is None:
        return has_prefix(subject, "")
    return subject == level or (not split(level).name and has_prefix(subject, level))


def delete_mode(state: RegistryState, subject: str | None, *, recursive: bool) -> Decision:
    """Answers with the mode deleted; recursively it takes those of a context's subjects too."""
    own = state.modes.get(subject)
    if own is None and not recursive and subject is not None:
        raise subject_not_found(subject)
    chosen = [subject] if subject in state.modes else []
    if recursive:
        chosen += [each for each in state.modes if each is not None and each != subject and concerns(each, subject)]
    return Decision({"mode": own or Mode.READWRITE.value}, tuple(Record(ModeKey(each), None) for each in chosen))
