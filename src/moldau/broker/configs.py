"""Config entries and their changes as values, for DescribeConfigs and AlterConfigs. Authorises and stores nothing."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from moldau.base.errors import Refusal, WireError
from moldau.base.settings import Kind, Live, Setting, SettingError, SettingsRefused, Table, Value, shortened, text_of
from moldau.broker.schemas.declared import problem_with
from moldau.broker.settings import BROKER, load, row_of
from moldau.groups import settings as of_groups
from moldau.groups.settings import GROUP
from moldau.log.settings import TOPIC, checked, default_of

TLS_PREFIX = "ssl."
PUBLIC = ("ssl.keystore.certificate.chain", "ssl.truststore.certificates")  # that Kafka treats as passwords
UNKNOWN_KIND = 0  # DescribeConfigs' type code of an unknown name


class Source(IntEnum):
    """The source of a value, by DescribeConfigs' codes."""

    DYNAMIC_TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_GROUP = 8


class Op(IntEnum):
    """The operations of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class Layers(NamedTuple):
    """A broker's settings as texts: dynamic ones of the broker and of the cluster, and the static ones of its start."""

    broker: Mapping[str, str]
    cluster: Mapping[str, str]
    static: Mapping[str, str]


class ConfigChange(NamedTuple):
    name: str
    op: int
    value: str | None


class SynonymEntry(NamedTuple):
    name: str
    value: str | None
    source: Source


class Entry(NamedTuple):
    """One setting in a DescribeConfigs response."""

    name: str
    value: str | None
    source: Source
    read_only: bool
    sensitive: bool
    kind: int
    synonyms: tuple[SynonymEntry, ...]
    documentation: str | None


# KIP-966: leader and controller must agree on it, or the leader commits what is uncommitted for the controller.
AGREED = frozenset({"min.insync.replicas"})

# Broker settings that exist in several units, the one with precedence first.
CHAINS = {
    synonym.name: tuple(each.name for each in setting.synonyms)
    for setting in TOPIC
    if len(setting.synonyms) > 1
    for synonym in setting.synonyms
}


def effective(layers: Layers) -> dict[str, str]:
    """The effective settings, for `load`: the broker's dynamic values before the cluster's before the static ones."""
    return {**layers.static, **layers.cluster, **layers.broker}


# ── describe ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def describe_topic(overrides: Mapping[str, str], layers: Layers, keys: Sequence[str] | None = None) -> list[Entry]:
    """The settings of a topic; all of them if `keys` is None or empty."""
    return _followers(TOPIC, Source.DYNAMIC_TOPIC, overrides, layers, keys)


def describe_group(overrides: Mapping[str, str], layers: Layers, keys: Sequence[str] | None = None) -> list[Entry]:
    """The settings of a consumer group."""
    return _followers(GROUP, Source.DYNAMIC_GROUP, overrides, layers, keys)


def describe_broker(layers: Layers, keys: Sequence[str] | None = None) -> list[Entry]:
    """The settings of this broker."""
    given = effective(layers)
    values = _typed(layers)
    own = [(name, row_of(name)) for name in given if name not in BROKER]  # of single listeners, or unknown
    entries = []
    for setting in (*BROKER, *(row for _, row in own if row)):
        if _wanted(setting, keys, given):
            synonyms = _broker_synonyms(setting, layers)
            entries.append(_entry(setting, values[setting.name], synonyms, setting.live is Live.READ_ONLY))
    unknown = [name for name, row in own if row is None and (not keys or name in keys)]
    return entries + [_unknown_entry(name, Source.STATIC_BROKER) for name in unknown]


def describe_cluster_defaults(layers: Layers, keys: Sequence[str] | None = None) -> list[Entry]:
    """The settings that were changed for all brokers (the broker resource without a name)."""
    entries = []
    for setting in BROKER:
        if setting.name in layers.cluster and _wanted(setting, keys, layers.cluster):
            synonym = _synonym(setting, setting.name, layers.cluster[setting.name], Source.DYNAMIC_DEFAULT_BROKER)
            value = _parsed(setting, layers.cluster[setting.name])
            entries.append(_entry(setting, value, (synonym,), setting.live is Live.READ_ONLY))
    return entries


def _followers(
    table: Table, source: Source, overrides: Mapping[str, str], layers: Layers, keys: Sequence[str] | None
) -> list[Entry]:
    """Settings that follow the broker's, unless they were set themselves."""
    broker_values = _typed(layers)
    return [
        _follower(setting, source, overrides, layers, broker_values)
        for setting in table
        if _wanted(setting, keys, overrides)
    ] + [_unknown_entry(name, source) for name in _not_in(table, overrides, keys)]


def _follower(
    setting: Setting, source: Source, overrides: Mapping[str, str], layers: Layers, broker_values: Mapping[str, Value]
) -> Entry:
    synonyms = _broker_synonyms(BROKER[setting.synonyms[0].name], layers) if setting.synonyms else ()
    if setting.name in overrides:
        value = _parsed(setting, overrides[setting.name])
        own = _synonym(setting, setting.name, text_of(value), source)
        return _entry(setting, value, (own, *synonyms), read_only=False)
    return _entry(setting, default_of(setting, broker_values), synonyms, read_only=False)


def _entry(setting: Setting, value: Value, synonyms: tuple[SynonymEntry, ...], read_only: bool) -> Entry:
    return Entry(
        name=setting.name,
        value=None if setting.sensitive else text_of(value),
        source=synonyms[0].source if synonyms else Source.DEFAULT,
        read_only=read_only,
        sensitive=setting.sensitive,
        kind=int(setting.kind),
        synonyms=synonyms,
        documentation=setting.doc,
    )


def _unknown_entry(name: str, source: Source) -> Entry:
    """An unknown name may be a secret, so its value is not shown."""
    return Entry(name, None, source, source is Source.STATIC_BROKER, True, UNKNOWN_KIND, (), None)


def _broker_synonyms(setting: Setting, layers: Layers) -> tuple[SynonymEntry, ...]:
    """The sources of a broker setting's value, the one with precedence first.

    As in Kafka the list begins at the setting's own name: `log.retention.hours` alone does not show for
    `log.retention.ms`, though it decides its value.
    """
    chain = CHAINS.get(setting.name, (setting.name,))
    found = [
        _synonym(setting, name, layer[name], source)
        for layer, source in (
            (layers.broker, Source.DYNAMIC_BROKER),
            (layers.cluster, Source.DYNAMIC_DEFAULT_BROKER),
            (layers.static, Source.STATIC_BROKER),
        )
        for name in chain
        if name in layer
    ]
    defaults = ((name, text_of(BROKER[name].default)) for name in chain if name in BROKER)
    found += [_synonym(setting, name, text, Source.DEFAULT) for name, text in defaults if text is not None]
    first = next((position for position, each in enumerate(found) if each.name == setting.name), len(found))
    return tuple(found[first:])


def _synonym(setting: Setting, name: str, text: str | None, source: Source) -> SynonymEntry:
    return SynonymEntry(name, None if setting.sensitive else text, source)


def _typed(layers: Layers) -> dict[str, Value]:
    values: dict[str, Value] = {setting.name: setting.default for setting in BROKER}
    for name, text in effective(layers).items():
        setting = row_of(name)
        if setting is not None:
            values[name] = _parsed(setting, text)
    return values


def _parsed(setting: Setting, text: str) -> Value:
    """A stored value. It was valid when it was stored; a later release may disagree."""
    value = setting.parse(text)
    return text if isinstance(value, SettingError) else value


def _wanted(setting: Setting, keys: Sequence[str] | None, given: Mapping[str, str]) -> bool:
    return (not keys or setting.name in keys) and (not setting.hidden or setting.name in given)


def _not_in(table: Table, given: Mapping[str, str], keys: Sequence[str] | None) -> Iterator[str]:
    return (name for name in given if name not in table and (not keys or name in keys))


# ── alter ─────────────────────────────────────────────────────────────────────────────────────────────────────────────


def new_topic(
    configs: Sequence[tuple[str, str | None]], broker_values: Mapping[str, Value]
) -> dict[str, str] | Refusal:
    """The overrides of a topic that is being created."""
    nulls = [name for name, value in configs if value is None]
    if nulls:
        return Refusal(
            WireError.INVALID_CONFIG, f"Null value not supported for topic configs: {shortened(', '.join(nulls))}"
        )
    return alter_topic({}, [ConfigChange(name, Op.SET, value) for name, value in configs], broker_values)


def alter_topic(
    current: Mapping[str, str], changes: Sequence[ConfigChange], broker_values: Mapping[str, Value]
) -> dict[str, str] | Refusal:
    """A topic's overrides after the changes. The older AlterConfigs replaces all: start from an empty `current`."""
    new = _alter_follower(TOPIC, checked, current, changes, broker_values)
    if isinstance(new, Refusal):
        return new
    return problem_with(new, {change.name for change in changes}) or new


def alter_group(
    current: Mapping[str, str], changes: Sequence[ConfigChange], broker_values: Mapping[str, Value]
) -> dict[str, str] | Refusal:
    """A group's overrides after the changes."""
    return _alter_follower(GROUP, of_groups.checked, current, changes, broker_values)


def _alter_follower(
    table: Table,
    check: Callable[[Mapping[str, str], Mapping[str, Value]], object],
    current: Mapping[str, str],
    changes: Sequence[ConfigChange],
    broker_values: Mapping[str, Value],
) -> dict[str, str] | Refusal:
    refusal = _malformed(changes)
    if refusal:
        return refusal
    new = dict(current)
    for change in changes:
        setting = table.get(change.name)
        if change.op in (Op.APPEND, Op.SUBTRACT) and (setting is None or setting.kind is not Kind.LIST):
            return _not_a_list(change)
        unset = () if setting is None else default_of(setting, broker_values)
        _apply(new, change, unset)
    # Unknown names from a newer release stay; only the names that are changed now must be known.
    written = {change.name for change in changes}
    verdict = check({name: new[name] for name in new if name in table or name in written}, broker_values)
    return verdict if isinstance(verdict, Refusal) else new


def alter_broker(layers: Layers, changes: Sequence[ConfigChange], *, per_broker: bool) -> dict[str, str] | Refusal:
    """The changed settings of this broker (`layers.broker`) or of all (`layers.cluster`) after the changes."""
    refusal = _malformed(changes) or _not_alterable(changes, per_broker)
    if refusal:
        return refusal
    values = _typed(layers)
    new = dict(layers.broker if per_broker else layers.cluster)
    for change in changes:
        _apply(new, change, values.get(change.name))
    # Without the broker's own layer below a cluster-wide change: it would hide a bad value.
    below = {**layers.static, **layers.cluster} if per_broker else layers.static
    try:
        load({**below, **new})
    except SettingsRefused as refused:
        return Refusal(WireError.INVALID_REQUEST, refused.problems[0].message)
    return new


def secrets_in(changes: Sequence[ConfigChange]) -> list[str]:
    """The names of passwords and keys among the settings that are set. Certificates are public."""
    rows = ((change.name, row_of(change.name)) for change in changes if change.op != Op.DELETE)
    return sorted(name for name, row in rows if row and row.sensitive and not row.name.endswith(PUBLIC))


def _not_a_list(change: ConfigChange) -> Refusal:
    words = f"Can't {Op(change.op).name} to key {shortened(change.name)}: it is not a list"
    return Refusal(WireError.INVALID_CONFIG, words)


def _malformed(changes: Sequence[ConfigChange]) -> Refusal | None:
    names = [change.name for change in changes]
    nulls = [change.name for change in changes if change.value is None and change.op != Op.DELETE]
    operations = [change.op for change in changes if change.op not in Op._value2member_map_]
    if len(set(names)) < len(names):
        return Refusal(WireError.INVALID_REQUEST, "Error due to duplicate config keys")
    if nulls:
        return Refusal(WireError.INVALID_REQUEST, f"Null value not supported for : {shortened(', '.join(nulls))}")
    if operations:
        return Refusal(WireError.INVALID_REQUEST, f"Unknown operations type {operations[0]}")
    return None


def _not_alterable(changes: Sequence[ConfigChange], per_broker: bool) -> Refusal | None:
    writes = [change for change in changes if change.op != Op.DELETE]
    rows: dict[str, Setting] = {}
    for change in writes:
        setting = row_of(change.name)
        if setting is None:
            return Refusal(WireError.INVALID_CONFIG, BROKER.unknown(change.name).message)
        if change.op in (Op.APPEND, Op.SUBTRACT) and setting.kind is not Kind.LIST:
            return _not_a_list(change)
        rows[change.name] = setting
    fixed = sorted(name for name, row in rows.items() if row.live is Live.READ_ONLY)
    if fixed:
        words = f"Cannot update these configs dynamically: {', '.join(fixed)}; they are read when the broker starts"
        return Refusal(WireError.INVALID_REQUEST, words)
    agreed = sorted(change.name for change in writes if change.name in AGREED)
    if agreed and per_broker:
        words = (
            f"Cannot update these configs for a single broker, the cluster has to agree on them: {', '.join(agreed)}"
        )
        return Refusal(WireError.INVALID_CONFIG, words)
    unprefixed = sorted(name for name in rows if name.startswith(TLS_PREFIX))
    if unprefixed:
        words = "These security configs can be dynamically updated only per-listener using the listener prefix"
        return Refusal(WireError.INVALID_REQUEST, f"{words}: {', '.join(unprefixed)}")
    own = sorted(name for name, row in rows.items() if row.live is Live.PER_BROKER)
    if own and not per_broker:
        words = f"Cannot update these configs at default cluster level, broker id must be specified: {', '.join(own)}"
        return Refusal(WireError.INVALID_REQUEST, words)
    return None


def _apply(values: dict[str, str], change: ConfigChange, unset: Value) -> None:
    """Apply one change; `unset` is the value of a list that was never set."""
    if change.op == Op.DELETE or change.value is None:
        values.pop(change.name, None)
        return
    if change.op == Op.SET:
        values[change.name] = change.value
        return
    old = values.get(change.name, text_of(unset)) or ""
    kept = [word for word in old.split(",") if word]
    words = change.value.split(",")
    if change.op == Op.APPEND:
        kept += [word for word in dict.fromkeys(words) if word not in kept]
    else:
        kept = [word for word in kept if word not in words]
    values[change.name] = ",".join(kept)
