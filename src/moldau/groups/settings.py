"""The settings of a group (KIP-848), and the bounds that broker settings put on them.

Kafka's settings of share and streams groups are refused: they would have no effect.
"""

from collections.abc import Iterator, Mapping

from moldau.base.errors import Refusal, WireError
from moldau.base.settings import Kind, Setting, SettingError, Synonym, Table, Value, shortened

# fmt: off
GROUP = Table("group", (
    Setting("consumer.assignment.interval.ms", Kind.INT, 1000, least=0,
            synonyms=(Synonym("group.consumer.assignment.interval.ms"),),
            doc="Pause between two assignments of the group (KIP-1263)."),
    Setting("consumer.heartbeat.interval.ms", Kind.INT, 5000, least=1,
            synonyms=(Synonym("group.consumer.heartbeat.interval.ms"),),
            doc="How often members of the group report, if they speak the consumer protocol."),
    Setting("consumer.session.timeout.ms", Kind.INT, 45000, least=1,
            synonyms=(Synonym("group.consumer.session.timeout.ms"),),
            doc="Silence after which a member of the group is out, if it speaks the consumer protocol."),
))
# fmt: on

HEARTBEAT, SESSION = "consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"
UNSUPPORTED = {"share.": "share groups", "streams.": "streams groups"}  # by prefix


def bounds_of(name: str) -> tuple[str, str]:
    """The broker settings with the minimum and maximum of a group's setting."""
    kind, _, rest = name.partition(".")
    return f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"


def checked(overrides: Mapping[str, str], broker_values: Mapping[str, Value]) -> Refusal | None:
    """Why a group cannot have these settings, as INVALID_CONFIG."""
    unknown = next((name for name in overrides if name not in GROUP), None)
    if unknown is not None:
        return Refusal(WireError.INVALID_CONFIG, _unknown(unknown))
    values: dict[str, Value] = {}
    for setting in GROUP:
        text = overrides.get(setting.name)
        value = broker_values[setting.synonyms[0].name] if text is None else setting.parse(text)
        if isinstance(value, SettingError):
            return Refusal(WireError.INVALID_CONFIG, value.message)
        values[setting.name] = value
    own = {name: values[name] for name in overrides}
    wrong = next(_out_of_bounds(own, broker_values), None) or next(_too_slow(values, HEARTBEAT, SESSION), None)
    return Refusal(WireError.INVALID_CONFIG, wrong.message) if wrong else None


def broker_problems(broker_values: Mapping[str, Value]) -> Iterator[SettingError]:
    """Contradictions in the broker's settings: defaults of groups must be within the bounds, too."""
    for setting in GROUP:
        low, high = bounds_of(setting.name)
        if _less(broker_values[high], broker_values[low]):
            words = f"{high} must be at least {low} ({broker_values[low]}), got {broker_values[high]}"
            yield SettingError(high, words)
    followed = {setting.name: broker_values[setting.synonyms[0].name] for setting in GROUP}
    yield from _out_of_bounds(followed, broker_values, "group.")
    yield from _too_slow(broker_values, f"group.{HEARTBEAT}", f"group.{SESSION}")


def _out_of_bounds(
    values: Mapping[str, Value], broker_values: Mapping[str, Value], prefix: str = ""
) -> Iterator[SettingError]:
    for name, value in values.items():
        low, high = bounds_of(name)
        if _less(value, broker_values[low]):
            words = f"must be at least {low} ({broker_values[low]}), got {value}"
        elif _less(broker_values[high], value):
            words = f"must be at most {high} ({broker_values[high]}), got {value}"
        else:
            continue
        yield SettingError(prefix + name, f"{prefix}{name} {words}")


def _too_slow(values: Mapping[str, Value], heartbeat: str, session: str) -> Iterator[SettingError]:
    if not _less(values[heartbeat], values[session]):
        words = f"{heartbeat} must be less than {session} ({values[session]}), got {values[heartbeat]}"
        yield SettingError(heartbeat, words)


def _less(one: Value, other: Value) -> bool:
    return isinstance(one, int) and isinstance(other, int) and one < other


def _unknown(name: str) -> str:
    for prefix, groups in UNSUPPORTED.items():
        if name.startswith(prefix):
            return f"{shortened(name)} is a setting of {groups}, which are not supported yet"
    return GROUP.unknown(name).message
