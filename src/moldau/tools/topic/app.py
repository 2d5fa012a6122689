"""`moldau topic`: create, list, describe, alter and delete topics."""

from typing import Annotated, Any

import typer

from moldau.base.ids import TopicPartition
from moldau.client.admin.clients import Admin
from moldau.client.admin.errors import Refused
from moldau.client.admin.topics import (
    Bounds,
    Topic,
    add_partitions,
    alter_configs,
    changed_configs,
    create_topic,
    delete_topics,
    describe_topics,
    read_bounds,
)
from moldau.client.admin.topics import list_topics as topic_names
from moldau.tools.common.app import App
from moldau.tools.common.complete import complete_topic
from moldau.tools.common.confirm import Yes, require_yes
from moldau.tools.common.failure import CommandError, misused, note, split_pair
from moldau.tools.common.hints import suggest
from moldau.tools.common.options import CommandContext, client_command
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.common.remedies import command_error
from moldau.tools.topic.schema import Schema, read_schema

app = App(name="topic", help="Create, list, describe, alter and delete topics.")

MOST_PARTITIONS = 100_000  # that librdkafka creates a topic with
MOST_REPLICAS = 2**15 - 1  # an int16 in CreateTopics

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="A topic setting, such as retention.ms=60000."),
]
# The same under the name that Kafka's own tool has.
Configs = Annotated[list[str] | None, typer.Option("--config", "-c", metavar="KEY=VALUE", hidden=True)]


@client_command(app, "create")
def create(
    context: CommandContext,
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions",
            "-p",
            metavar="N",
            min=1,
            max=MOST_PARTITIONS,
            help="How many.",
            show_default="the broker's num.partitions",
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication",
            "-r",
            metavar="N",
            min=1,
            max=MOST_REPLICAS,
            help="Replicas of each.",
            show_default="the broker's default.replication.factor",
        ),
    ] = None,
    settings: Settings = None,
    config: Configs = None,
    schema: Schema = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Accept a topic that exists.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Validate only; create nothing.")] = False,
) -> None:
    """Create a topic."""
    configs = read_settings(settings, config) | read_schema(schema)
    outcome = "valid" if dry_run else "created"
    try:
        create_topic(
            Admin(context.target),
            name,
            partitions=partitions,
            replication=replication,
            configs=configs,
            validate_only=dry_run,
        )
    except Refused as refused:
        if not (if_not_exists and refused.name == "TOPIC_ALREADY_EXISTS"):
            raise
        outcome = "exists"
    if context.json:
        print_json({"topic": name, "outcome": outcome})
        return
    sentences = {
        "created": f"Created topic {name}. Write to it with: {suggest(f'produce {name}')}",
        "valid": f"Topic {name} can be created like this; nothing was changed.",
        "exists": f"Topic {name} exists already; nothing was changed.",
    }
    print_text(sentences[outcome])


def read_settings(settings: list[str] | None, config: list[str] | None) -> dict[str, str]:
    return dict(split_pair(text, "--set") for text in (*(settings or ()), *(config or ())))


@client_command(app, "list")
def list_topics(
    context: CommandContext,
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics as well.")] = False,
) -> None:
    """List the topics."""
    admin = Admin(context.target)
    described = [one for one in describe_topics(admin, topic_names(admin)) if internal or not one.internal]
    rows = [(one.name, len(one.partitions), one.replication) for one in described]
    if context.json:
        print_json([dict(zip(("topic", "partitions", "replication"), row, strict=True)) for row in rows])
    elif rows:
        print_table(("TOPIC", "PARTITIONS", "REPLICATION"), rows)
    else:
        note(f"No topics yet. Create one with: {suggest('topic create demo')}")


@client_command(app, "describe")
def describe(
    context: CommandContext,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", autocompletion=complete_topic, help="All when none is named.", show_default=False
        ),
    ] = None,
    storage: Annotated[
        bool, typer.Option("--storage", help="Show directories, sizes, segments and compaction instead.")
    ] = False,
) -> None:
    """Show partitions, leaders, replicas, offsets and the settings that differ from the defaults."""
    admin = Admin(context.target)
    described = [one for one in describe_topics(admin, names or topic_names(admin)) if names or not one.internal]
    offsets = read_bounds(admin, described)
    if storage:
        _show_storage(context, described, offsets)
        return
    configs = changed_configs(admin, [one.name for one in described])
    documents = [_document(one, offsets, configs[one.name]) for one in described]
    if context.json:
        print_json(documents)
        return
    for index, document in enumerate(documents):
        if index:
            print_text("")
        _print_topic(document)


@client_command(app, "alter")
def alter(
    context: CommandContext,
    name: TopicName,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, max=MOST_PARTITIONS, help="The new total; it can only grow."
        ),
    ] = None,
    settings: Settings = None,
    config: Configs = None,
    schema: Schema = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="Return to its default.")] = None,
) -> None:
    """Add partitions, or change a topic's settings."""
    changes: dict[str, str | None] = {**read_settings(settings, config), **read_schema(schema)}
    changes |= dict.fromkeys(unset or ())
    if partitions is None and not changes:
        raise misused("nothing to change", remedy="Give --partitions, --set, --schema or --unset")
    admin = Admin(context.target)
    if changes:  # first, because a refused setting then leaves the topic untouched
        alter_configs(admin, name, changes)
    if partitions is not None:
        add_partitions(admin, name, partitions)
    if context.json:
        print_json({"topic": name, "outcome": "altered"})
    else:
        print_text(f"Altered topic {name}.")


@client_command(app, "delete")
def delete(
    context: CommandContext,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC…", autocompletion=complete_topic, show_default=False)],
    yes: Yes = False,
) -> None:
    """Delete topics with all their records."""
    wanted = list(dict.fromkeys(names))
    if not yes:
        require_yes("deleting topics", f"Delete {', '.join(wanted)} with all records?")
    outcomes = delete_topics(Admin(context.target), wanted)
    failures = {name: command_error(refused) for name, refused in outcomes.items() if refused is not None}
    done = [name for name in outcomes if name not in failures]
    if context.json:
        print_json([{"topic": name, "outcome": str(failures.get(name, "deleted"))} for name in outcomes])
    elif done:
        print_text(f"Deleted {', '.join(done)}.")
    if failures:
        first = next(iter(failures.values()))
        more = f" ({len(failures)} topics failed)" if len(failures) > 1 else ""
        raise CommandError(f"{first}{more}")


def _document(topic: Topic, offsets: dict[TopicPartition, Bounds], configs: dict[str, str | None]) -> dict[str, Any]:
    partitions = []
    for one in topic.partitions:
        begin, end = offsets.get(TopicPartition(topic.name, one.partition), (None, None))
        partitions.append(
            {
                "partition": one.partition,
                "leader": one.leader,
                "replicas": list(one.replicas),
                "isr": list(one.isr),
                "begin": begin,
                "end": end,
            }
        )
    return {
        "topic": topic.name,
        "id": topic.id,
        "internal": topic.internal,
        "partitions": partitions,
        "configs": configs,
    }


def _print_topic(document: dict[str, Any]) -> None:
    print_text(f"Topic {document['topic']}{' (internal)' if document['internal'] else ''}  id {document['id']}")
    for name, value in document["configs"].items():
        print_text(f"  {name} = {'(hidden)' if value is None else value}")
    columns = ("partition", "leader", "replicas", "isr", "begin", "end")
    rows = [[partition[column] for column in columns] for partition in document["partitions"]]
    print_table([column.upper() for column in columns], rows)


def _show_storage(context: CommandContext, described: list[Topic], offsets: dict[TopicPartition, Bounds]) -> None:
    from moldau.tools.topic import storage

    rows, notes = storage.read_storage(context.target, [one.name for one in described])
    documents = [
        {
            **row._asdict(),
            "begin": offsets.get(TopicPartition(row.topic, row.partition), (None, None))[0],
        }  # the log start
        for row in rows
    ]
    if context.json:
        print_json(documents)
    else:
        columns = [name for name in storage.Storage._fields if name != "directory"]
        columns.insert(columns.index("bytes"), "begin")
        columns.append("directory")
        cells = [[_shown(document[column]) for column in columns] for document in documents]
        print_table([column.replace("_", " ").upper() for column in columns], cells)
    for line in notes:
        note(line)


def _shown(value: Any) -> Any:
    return f"{value:.2f}" if isinstance(value, float) else value
