"""docs/settings.md, rendered from the tables. Print it with `python -m moldau.broker.settings`."""

from moldau.base.settings import Group, markdown
from moldau.broker.settings import GUARDS, LATER, TOPIC_DEFAULTS
from moldau.broker.tables.clusters import CLUSTERS
from moldau.broker.tables.coordination import COORDINATION
from moldau.broker.tables.idle import IDLE
from moldau.broker.tables.replication import REPLICATION
from moldau.broker.tables.sasl import SASL
from moldau.broker.tables.security import AUDIT, AUTHORIZATION
from moldau.broker.tables.tls import TLS
from moldau.broker.tables.used import USED
from moldau.groups.settings import GROUP
from moldau.log.settings import TOPIC

HEAD = """# Settings

This page is rendered from the tables in the code (`python -m moldau.broker.settings > docs/settings.md`), and a test
keeps it up to date. Names, types, bounds and defaults are Kafka's, except that `log.dir` is `./data` and `node.id` is 1
by default, and that listeners change only with a restart; `zookeeper.*` are those of Kafka 3. Numbers have no units:
`10485760`, not `10MB`.

An invalid value or an unknown name is refused with the reason, the nearest valid name, and its line in the properties
file.
"""

TOPICS = """
## Topics

Set with `moldau topic create` and `moldau topic alter`, or by any Kafka tool. A topic without a value of its own
takes the broker's settings in the second table, and then the default.

Tiered storage is not supported yet: its settings (`remote.*`, `local.*`) are validated, stored and described, but have
no effect. `preallocate` has none either.
"""

SYNONYMS = """
### Defaults of topic settings

Of several broker settings, the first that is set takes precedence.

| Topic setting | Broker settings |
|---|---|
"""

GROUPS = """
## Groups

Set for a single consumer group by Kafka's tools (`kafka-configs --entity-type groups`), whether it has members or not,
and used from a member's next heartbeat on. A group without a value takes the broker's setting of the same name with the
prefix `group.`. `group.consumer.min.*` and `group.consumer.max.*` bound a group's values; if a broker has narrower
bounds than those under which a value was set, the nearest value within them is used.

Kafka's settings of share and streams groups (`share.*`, `streams.*`) are refused: these groups are not supported yet.
"""

BROKERS = """
## Brokers

Set in a properties file (`moldau broker --config server.properties`) or one by one (`--set name=value`). The settings
that are dynamic can also be changed with any Kafka tool while the broker runs.
"""

NOT_THERE = """
## Not supported yet

These belong to features that are not supported yet. They are validated, accepted with a warning and otherwise ignored.
"""

REFUSED = """
### Refused

Ignoring these would do harm, so a broker refuses to start with them, unless they have their default value.

| Setting | Otherwise |
|---|---|
"""

NO_MEANING = """
## Without effect

These control internals of Apache Kafka. They are validated, accepted with a warning and otherwise ignored, so that an
existing `server.properties` works.
"""


def render() -> str:
    """The whole page."""
    followed = "".join(
        f"| `{setting.name}` | {', '.join(f'`{synonym.name}`' for synonym in setting.synonyms)} |\n"
        for setting in TOPIC
        if setting.synonyms
    )
    refused = "".join(f"| `{name}` | {GUARDS[name]} |\n" for name in sorted(GUARDS))
    parts = [
        HEAD,
        TOPICS,
        markdown(TOPIC, live=False),
        SYNONYMS + followed,
        GROUPS,
        markdown(GROUP, live=False),
        BROKERS,
        markdown(
            (*USED, *CLUSTERS, *AUDIT, *AUTHORIZATION, *COORDINATION, *REPLICATION, *SASL, *TLS, *TOPIC_DEFAULTS),
            live=True,
        ),
        NOT_THERE,
        _groups(LATER, " (no effect yet)"),
        REFUSED + refused,
        NO_MEANING,
        _groups(IDLE),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _groups(groups: tuple[Group, ...], note: str = "") -> str:
    titles = (group.what[0].upper() + group.what[1:] + note for group in groups)
    tables = (markdown(group.settings, live=True) for group in groups)
    return "\n".join(f"### {title}\n\n{table}" for title, table in zip(titles, tables, strict=True))
