"""docs/settings.md, rendered from the tables. Print it with `python -m moldau.broker.settings`."""

from moldau.base.settings import Group, markdown
from moldau.broker.settings import GUARDS, LATER, TOPIC_DEFAULTS
from moldau.broker.tables.clusters import CLUSTERS
from moldau.broker.tables.coordination import COORDINATION
from moldau.broker.tables.idle import IDLE
from moldau.broker.tables.replication import REPLICATION
from moldau.broker.tables.used import USED
from moldau.groups.settings import GROUP
from moldau.log.settings import TOPIC

HEAD = """# Settings

This page is made from the tables in the code (`python -m moldau.broker.settings > docs/settings.md`), and a test keeps
it up to date. Names, kinds, bounds and defaults are Kafka's, except that `log.dir` is `./data` and `node.id` is 1 when
nobody sets them, and that listeners change only with a restart; `zookeeper.*` are those of Kafka 3. Numbers are plain:
`10485760`, not `10MB`.

A value that does not fit, or a name that Kafka does not know, is refused with the reason and the nearest valid name.
"""

TOPICS = """
## Topics

Set with `moldau topic create` and `moldau topic alter`, or by any Kafka tool. A topic without a value of its own
follows the broker's settings that the second table names, and then the default.

Tiered storage is still to come: its settings (`remote.*`, `local.*`) are checked, kept and shown, but have no effect
yet. `preallocate` has none either.
"""

SYNONYMS = """
### What a topic follows

Where several are named, the first that is set counts.

| Topic setting | Broker settings |
|---|---|
"""

GROUPS = """
## Groups

Set for a single consumer group by Kafka's tools (`kafka-configs --entity-type groups`), whether it has members or not,
and used from a member's next heartbeat on. A group without a value of its own follows the broker's setting of the same
name with `group.` before it. `group.consumer.min.*` and `group.consumer.max.*` bound what a group may choose; where a
broker starts with narrower bounds than a value was set under, the nearest value within them is used.

Kafka's settings of share and streams groups (`share.*`, `streams.*`) are refused until these groups are there.
"""

BROKERS = """
## Brokers

Set in a properties file (`moldau broker --config server.properties`) or one by one (`--set name=value`). The settings
that can change while the broker runs are changed by any Kafka tool.
"""

NOT_THERE = """
## Not there yet

These belong to features that are still to come. They are checked, accepted with a warning and otherwise ignored.
"""

REFUSED = """
### Refused

Ignoring these would do harm, so a broker does not start with them (unless they have their default value).

| Setting | Otherwise |
|---|---|
"""

NO_MEANING = """
## Without meaning here

These steer the inside of Apache Kafka. They are checked, accepted with a warning and otherwise ignored, so that an
existing `server.properties` starts.
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
        markdown((*USED, *CLUSTERS, *COORDINATION, *REPLICATION, *TOPIC_DEFAULTS), live=True),
        NOT_THERE,
        _groups(LATER),
        REFUSED + refused,
        NO_MEANING,
        _groups(IDLE),
    ]
    return "\n".join(part.strip("\n") + "\n" for part in parts)


def _groups(groups: tuple[Group, ...]) -> str:
    return "\n".join(
        f"### {group.what[0].upper()}{group.what[1:]}\n\n{markdown(group.settings, live=True)}" for group in groups
    )
