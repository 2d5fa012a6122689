"""`moldau topic`: create, list, describe, alter and delete topics."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from moldau.tools.common.complete import complete_topic
from moldau.tools.common.confirm import require_yes
from moldau.tools.common.failure import CommandError, misused, note, split_pair
from moldau.tools.common.options import Session, client_command
from moldau.tools.common.output import print_json, print_table, print_text
from moldau.tools.connect import Target, await_result, build_admin, describe_topics, failure

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient, TopicDescription

app = typer.Typer(name="topic", help="Create, list, describe, alter and delete topics.", add_completion=False)

REQUEST_S = 15.0
URL_SAFE = str.maketrans("+/", "-_")  # librdkafka prints ids in plain base64, everybody else in the kind that URLs take

TopicName = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, show_default=False)]
ConfigPairs = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A topic setting, such as retention.ms=60000."),
]


@client_command(app, "create")
def create(
    session: Session,
    name: Annotated[str, typer.Argument(metavar="TOPIC", show_default=False)],
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", metavar="N", min=1, help="How many.", show_default="the broker's num.partitions"
        ),
    ] = None,
    replication: Annotated[
        int | None,
        typer.Option(
            "--replication",
            "-r",
            metavar="N",
            min=1,
            help="Copies of each.",
            show_default="the broker's default.replication.factor",
        ),
    ] = None,
    config: ConfigPairs = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="An existing topic is no error.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Let the broker check it, and create nothing.")] = False,
) -> None:
    """Create a topic."""
    from confluent_kafka.admin import NewTopic

    settings = dict(split_pair(text, "--config") for text in config or ())
    admin = build_admin(session.target)
    topic = NewTopic(name, num_partitions=partitions or -1, replication_factor=replication or -1, config=settings)
    future = admin.create_topics([topic], validate_only=dry_run, request_timeout=REQUEST_S)[name]
    outcome = "valid" if dry_run else "created"
    try:
        await_result(future, session.target, topic=name)
    except CommandError as refused:
        if not (if_not_exists and _is_error(refused, "TOPIC_ALREADY_EXISTS")):
            raise
        outcome = "exists"
    if session.json:
        print_json({"topic": name, "outcome": outcome})
        return
    sentences = {
        "created": f"Created topic {name}. Write to it with: moldau produce {name}",
        "valid": f"Topic {name} could be created so; nothing was changed.",
        "exists": f"Topic {name} exists already; nothing was changed.",
    }
    print_text(sentences[outcome])


def _is_error(refused: CommandError, name: str) -> bool:
    """Whether the failure was caused by this error of librdkafka's."""
    cause = refused.__cause__
    return cause is not None and bool(cause.args) and getattr(cause.args[0], "name", str)() == name


@client_command(app, "list")
def list_topics(
    session: Session,
    internal: Annotated[bool, typer.Option("--internal", help="Also the brokers' own topics.")] = False,
) -> None:
    """List the topics."""
    admin = build_admin(session.target)
    names = _topic_names(admin, session.target)
    described = [one for one in describe_topics(admin, session.target, names) if internal or not one.is_internal]
    rows = [(one.name, len(one.partitions), _replication(one)) for one in described]
    if session.json:
        print_json([dict(zip(("topic", "partitions", "replication"), row, strict=True)) for row in rows])
    elif rows:
        print_table(("TOPIC", "PARTITIONS", "REPLICATION"), rows)
    else:
        note("No topics yet. Create one with: moldau topic create demo")


@client_command(app, "describe")
def describe(
    session: Session,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[TOPIC]…", autocompletion=complete_topic, help="All when none is named.", show_default=False
        ),
    ] = None,
    storage: Annotated[
        bool, typer.Option("--storage", help="Instead: directories, sizes, segments, and how much is compacted.")
    ] = False,
) -> None:
    """Show partitions, leaders, replicas, offsets and the settings that differ from the defaults."""
    admin = build_admin(session.target)
    wanted = names or _topic_names(admin, session.target)
    described = [one for one in describe_topics(admin, session.target, wanted) if names or not one.is_internal]
    if storage:
        _show_storage(session, described, _offsets(admin, session.target, described))
        return
    offsets = _offsets(admin, session.target, described)
    configs = _changed_configs(admin, session.target, [one.name for one in described])
    documents = [_document(one, offsets, configs[one.name]) for one in described]
    if session.json:
        print_json(documents)
        return
    for index, document in enumerate(documents):
        if index:
            print_text("")
        _print_topic(document)


@client_command(app, "alter")
def alter(
    session: Session,
    name: TopicName,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", metavar="N", min=1, help="The new total; it can only grow.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Set a topic setting.")
    ] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", metavar="KEY", help="Return to its default.")] = None,
) -> None:
    """Add partitions, or change a topic's settings."""
    if partitions is None and not settings and not unset:
        raise misused("nothing to change", remedy="Give --partitions, --set or --unset")
    changes = [*(split_pair(text, "--set") for text in settings or ()), *((key, None) for key in unset or ())]
    admin = build_admin(session.target)
    if changes:  # first, because a refused setting then leaves the topic untouched
        _alter_configs(admin, session.target, name, changes)
    if partitions is not None:
        from confluent_kafka.admin import NewPartitions

        future = admin.create_partitions([NewPartitions(name, partitions)], request_timeout=REQUEST_S)[name]
        await_result(future, session.target, topic=name)
    if session.json:
        print_json({"topic": name, "outcome": "altered"})
    else:
        print_text(f"Altered topic {name}.")


@client_command(app, "delete")
def delete(
    session: Session,
    names: Annotated[list[str], typer.Argument(metavar="TOPIC…", autocompletion=complete_topic, show_default=False)],
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> None:
    """Delete topics with all their records."""
    wanted = list(dict.fromkeys(names))
    if not yes:
        require_yes("deleting topics", f"Delete {', '.join(wanted)} with all records?")
    admin = build_admin(session.target)
    outcomes: dict[str, str] = {}
    for name, future in admin.delete_topics(wanted, request_timeout=REQUEST_S).items():
        try:
            await_result(future, session.target, topic=name)
            outcomes[name] = "deleted"
        except CommandError as refused:
            outcomes[name] = str(refused)
    done = [name for name, outcome in outcomes.items() if outcome == "deleted"]
    if session.json:
        print_json([{"topic": name, "outcome": outcome} for name, outcome in outcomes.items()])
    elif done:
        print_text(f"Deleted {', '.join(done)}.")
    failures = [outcome for outcome in outcomes.values() if outcome != "deleted"]
    if failures:
        more = f" ({len(failures)} topics failed)" if len(failures) > 1 else ""
        raise CommandError(failures[0] + more)


def _topic_names(admin: "AdminClient", target: Target) -> list[str]:
    from confluent_kafka import KafkaException

    try:
        return sorted(admin.list_topics(timeout=REQUEST_S).topics)
    except KafkaException as error:
        raise failure(error, target) from error


def _replication(topic: "TopicDescription") -> int:
    return max((len(partition.replicas) for partition in topic.partitions), default=0)


Bounds = dict[tuple[str, int], tuple[int | None, int | None]]


def _offsets(admin: "AdminClient", target: Target, topics: list["TopicDescription"]) -> Bounds:
    """First and next offset of every partition that has a leader."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import OffsetSpec

    places = [
        TopicPartition(topic.name, one.id) for topic in topics for one in topic.partitions if one.leader is not None
    ]
    if not places:
        return {}
    first: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
    last: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
    begin = admin.list_offsets(dict.fromkeys(places, first), request_timeout=REQUEST_S)
    end = admin.list_offsets(dict.fromkeys(places, last), request_timeout=REQUEST_S)
    return {
        (place.topic, place.partition): (
            await_result(begin[place], target, topic=place.topic).offset,
            await_result(end[place], target, topic=place.topic).offset,
        )
        for place in places
    }


def _changed_configs(admin: "AdminClient", target: Target, names: list[str]) -> dict[str, dict[str, str | None]]:
    """For each topic the settings whose value does not come from the defaults."""
    from confluent_kafka.admin import ConfigResource, ConfigSource

    default = ConfigSource.DEFAULT_CONFIG.value
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in names]
    futures = admin.describe_configs(resources, request_timeout=REQUEST_S) if resources else {}
    changed: dict[str, dict[str, str | None]] = {}
    for resource, future in futures.items():
        entries = await_result(future, target, topic=resource.name)
        changed[resource.name] = {
            name: entry.value for name, entry in sorted(entries.items()) if _source_number(entry.source) != default
        }
    return changed


def _source_number(source: Any) -> int:
    # librdkafka hands the source over as an enum member in some versions and as a number in others.
    return int(getattr(source, "value", source))


def _document(topic: "TopicDescription", offsets: Bounds, configs: dict[str, str | None]) -> dict[str, Any]:
    partitions = []
    for one in topic.partitions:
        begin, end = offsets.get((topic.name, one.id), (None, None))
        partitions.append(
            {
                "partition": one.id,
                "leader": None if one.leader is None else one.leader.id,
                "replicas": [node.id for node in one.replicas],
                "isr": [node.id for node in one.isr],
                "begin": begin,
                "end": end,
            }
        )
    return {
        "topic": topic.name,
        "id": str(topic.topic_id).translate(URL_SAFE),
        "internal": topic.is_internal,
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


def _show_storage(session: Session, described: list["TopicDescription"], offsets: Bounds) -> None:
    from moldau.tools.topic import storage

    rows, notes = storage.ask(session.target, [one.name for one in described])
    documents = [
        {**row._asdict(), "begin": offsets.get((row.topic, row.partition), (None, None))[0]}  # the log start
        for row in rows
    ]
    if session.json:
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


def _alter_configs(admin: "AdminClient", target: Target, name: str, changes: list[tuple[str, str | None]]) -> None:
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

    entries = [
        ConfigEntry(
            key,
            value if value is not None else "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for key, value in changes
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=entries)
    future = admin.incremental_alter_configs([resource], request_timeout=REQUEST_S)[resource]
    await_result(future, target, topic=name)
