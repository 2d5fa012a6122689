"""Config and mode of a subject: its own, else its context's, else the top level's, else the default."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from moldau.schemas import CompatibilityLevel
from moldau.services.registry.core.names import DEFAULT_CONTEXT, GLOBAL, Subject, context_of, top_level
from moldau.services.registry.core.records import Json, JsonObject
from moldau.services.registry.core.state import RegistryState


class Mode(StrEnum):
    READWRITE = "READWRITE"
    READONLY = "READONLY"
    READONLY_OVERRIDE = "READONLY_OVERRIDE"  # at the top level: whatever contexts and subjects say
    IMPORT = "IMPORT"
    FORWARD = "FORWARD"

    @property
    def read_only(self) -> bool:
        return self in (Mode.READONLY, Mode.READONLY_OVERRIDE)

    @property
    def takes_ids(self) -> bool:
        """Schemas come with the ids and versions that they have elsewhere."""
        return self in (Mode.IMPORT, Mode.FORWARD)


LEVEL: Final = "compatibilityLevel"
DEFAULTS: Final[JsonObject] = {LEVEL: CompatibilityLevel.BACKWARD.value}


def levels_of(subject: str | None) -> Iterator[str | None]:
    """The subjects whose settings count for a subject, the nearest first."""
    if subject is not None:
        yield subject
        context = context_of(subject)
        if context == DEFAULT_CONTEXT:
            yield None
        elif str(Subject(context, "")) not in (subject, GLOBAL):
            yield str(Subject(context, ""))
    else:
        yield None
    if subject != GLOBAL:
        yield GLOBAL


def config_in_scope(state: RegistryState, subject: str | None) -> JsonObject:
    """Each setting as the nearest level has it."""
    found: JsonObject = {}
    for level in levels_of(subject if subject is None else top_level(subject)):
        for name, value in state.configs.get(level, {}).items():
            if value is not None:
                found.setdefault(name, value)
    return {**DEFAULTS, **found}


def own_config(state: RegistryState, subject: str | None) -> JsonObject | None:
    """The config of exactly this subject or context; the top levels have one always."""
    own = state.configs.get(subject)
    if own is None and subject in (None, GLOBAL):
        return dict(DEFAULTS)
    return own


def mode_in_scope(state: RegistryState, subject: str | None) -> Mode:
    if Mode.READONLY_OVERRIDE in (state.modes.get(None), state.modes.get(GLOBAL)):
        return Mode.READONLY_OVERRIDE
    for level in levels_of(subject if subject is None else top_level(subject)):
        if level in state.modes:
            return read_mode(state.modes[level])
    return Mode.READWRITE


def read_mode(text: str) -> Mode:
    """A mode that a newer registry wrote counts as READONLY: writing could break what it means."""
    try:
        return Mode(text.upper())
    except ValueError:
        return Mode.READONLY


def compatibility_level(config: JsonObject) -> CompatibilityLevel:
    try:
        return CompatibilityLevel(str(config[LEVEL]))
    except ValueError:
        return CompatibilityLevel.FULL_TRANSITIVE  # of a newer registry: the strictest that we know


def is_set(config: JsonObject, name: str) -> bool:
    return config.get(name) is True


def merge_metadata(default: Json, specific: Json, override: Json) -> JsonObject | None:
    """Maps are merged entry by entry, and the later one wins."""
    merged: JsonObject | None = None
    for each in (default, specific, override):
        if not isinstance(each, dict):
            continue
        merged = dict(merged or {})
        for name, value in each.items():
            before = merged.get(name)
            if isinstance(value, dict) and isinstance(before, dict):
                merged[name] = {**before, **value}
            elif isinstance(value, list) and isinstance(before, list):
                merged[name] = [*before, *(item for item in value if item not in before)]
            elif value is not None:
                merged[name] = value
    return merged


def merge_rule_sets(default: Json, specific: Json, override: Json) -> JsonObject | None:
    """Rules are merged by name, and the later one wins."""
    merged: JsonObject | None = None
    for each in (default, specific, override):
        if not isinstance(each, dict):
            continue
        merged = dict(merged or {})
        for kind, rules in each.items():
            before = merged.get(kind)
            if isinstance(rules, list) and isinstance(before, list):
                names = {rule.get("name") for rule in rules if isinstance(rule, dict)}
                kept = [rule for rule in before if isinstance(rule, dict) and rule.get("name") not in names]
                merged[kind] = [*kept, *rules]
            elif rules is not None:
                merged[kind] = rules
    return merged
