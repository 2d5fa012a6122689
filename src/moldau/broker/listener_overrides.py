"""Settings of single listeners: `listener.name.<listener>.[<mechanism>.]<setting>` precedes `<setting>`. No meanings.

A mechanism is named for settings of SASL and connections.max.reauth.ms alone. Listeners and mechanisms may be written
in any case.
"""

from collections import ChainMap
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from moldau.base.settings import Setting, Table, Value

PREFIX = "listener.name."
OF_LISTENERS = ("ssl.", "sasl.")  # the settings that a listener may have a value of its own for: all of these, and
ALSO_OF_LISTENERS = frozenset(
    {"connection.failed.authentication.delay.ms", "connections.max.reauth.ms", "principal.builder.class"}
)
OF_MECHANISMS = ("sasl.", "connections.max.reauth.ms")


class Override(NamedTuple):
    """A name with the prefix, taken apart. Listener and mechanism are in capitals; no mechanism is ""."""

    listener: str
    mechanism: str
    setting: Setting


def split(name: str, table: Table) -> Override | None:
    """Take a prefixed name apart; None if it ends in no setting of the table."""
    if not name.startswith(PREFIX):
        return None
    listener, *rest = name.removeprefix(PREFIX).split(".")
    for skipped in (0, 1):
        setting = table.get(".".join(rest[skipped:]))
        if setting is not None and listener and (not skipped or setting.name.startswith(OF_MECHANISMS)):
            return Override(listener.upper(), rest[0].upper() if skipped else "", setting)
    return None


def of_listeners(name: str) -> bool:
    """Whether a listener may have its own value of the setting."""
    return name.startswith(OF_LISTENERS) or name in ALSO_OF_LISTENERS


@dataclass(frozen=True, slots=True)
class ListenerOverrides:
    """The values that are set for single listeners, and for single mechanisms of them."""

    _values: Mapping[tuple[str, str], Mapping[str, Value]] = field(default_factory=dict)

    def over(self, values: Mapping[str, Value], listener: str, mechanism: str = "") -> Mapping[str, Value]:
        """All settings as the listener has them: the mechanism's own, the listener's own, then `values`."""
        own = self._values.get((listener.upper(), ""), {})
        of_mechanism = self._values.get((listener.upper(), mechanism.upper()), {}) if mechanism else {}
        return ChainMap(dict(of_mechanism), dict(own), dict(values))

    def has(self, listener: str, setting: str, mechanism: str = "") -> bool:
        """Whether the listener has a value of its own."""
        return setting in self._values.get((listener.upper(), mechanism.upper()), {})
