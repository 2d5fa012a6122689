"""`app.run()` and `moldau streams run`: the topics between queries, the queries themselves, and changes of a program.

Checkpoints, lock and status are those of a pipeline with the name of the application: DIR/pipelines/NAME.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from moldau.client.admin.clients import Admin
from moldau.client.admin.errors import Refused
from moldau.client.admin.target import Target
from moldau.client.admin.topics import create_topic, delete_topics, describe_topics, list_topics
from moldau.spark.pipelines.directory import PipelineDirectory, locked
from moldau.streams.compiler.plan import start
from moldau.streams.compiler.topics import Topics
from moldau.streams.sql.errors import StreamsError
from moldau.streams.topology.describe import describe_node
from moldau.streams.topology.nodes import ForeignKeyJoin, Source, Topology, is_stateful
from moldau.streams.topology.queries import Query, members, queries_of

MAX_PARTITIONS: Final = 64  # of an internal topic
RECORD: Final = "topology.json"


class ProgramChanged(StreamsError):
    """A program cannot go on from the checkpoints of an earlier version."""


class NotRunnable(StreamsError):
    """A program that only app.test() runs."""


class MissingTopics(StreamsError):
    """Topics that a program reads or writes do not exist."""


def check_runnable(topology: Topology) -> None:
    for node in topology.nodes:
        if isinstance(node, ForeignKeyJoin):
            raise NotRunnable(
                f"{node.name}: joins by a foreign key run in app.test() only, so far. On Spark: make the foreign key "
                "the key of a stream (to_stream().select_key(…)) and join that with the other table"
            )


def start_queries(
    topology: Topology, spark: Any, bootstrap: str, directory: PipelineDirectory, first: str = "earliest"
) -> list[Any]:
    """Start all queries of a program; each goes on from its checkpoint."""
    check_runnable(topology)
    queries = queries_of(topology)
    check_compatible(queries, topology, directory.path)
    create_internal_topics(queries, topology, bootstrap)
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    topics = Topics(spark, {"kafka.bootstrap.servers": bootstrap}, topology.dead_letters, first)
    started = []
    for query in queries:
        checkpoint = {"checkpointLocation": str(directory.checkpoints / query.name)}
        started.append(start(query, topics, spark, checkpoint, name=query.name))
    remember(queries, topology, directory.path)
    return started


def create_internal_topics(queries: list[Query], topology: Topology, bootstrap: str) -> None:
    """With as many partitions as the largest topic that the program reads. Topics of the user must be there."""
    admin = Admin(Target(bootstrap))
    known = set(list_topics(admin))
    wanted = {source.topic for source in topology.sources} | {sink.topic for sink in topology.sinks}
    missing = sorted((wanted | ({topology.dead_letters} - {""})) - known)
    if missing:
        raise MissingTopics(
            f"topics of {topology.name} do not exist: {', '.join(missing)}. "
            f"Create them: moldau topic create {missing[0]}"
        )
    read = sorted({source.topic for source in topology.sources})
    counts = [len(topic.partitions) for topic in describe_topics(admin, read)]
    for query in queries:
        for internal in query.inputs:
            if internal.topic not in known:
                _create(admin, internal.topic, min(max(counts), MAX_PARTITIONS))


def _create(admin: Admin, topic: str, partitions: int) -> None:
    try:
        create_topic(admin, topic, partitions=partitions)
    except Refused as refused:
        if refused.name != "TOPIC_ALREADY_EXISTS":  # another run was faster
            raise


def signatures(queries: list[Query], topology: Topology) -> dict[str, dict[str, str]]:
    """What may not change while a query has a checkpoint: its operator with state, and the topics that it reads."""
    found = {}
    for query in queries:
        reads = sorted(node.topic for node in members(query, topology) if isinstance(node, Source))
        state = describe_node(query.root) if is_stateful(query.root) else ""
        internal = [each.topic for each in query.inputs]
        found[query.name] = {"state": state, "reads": ", ".join([*reads, *internal]), "internal": ", ".join(internal)}
    return found


def check_compatible(queries: list[Query], topology: Topology, folder: Path) -> None:
    """Refuse a program whose operators with state are not those that the checkpoints are of."""
    before = recorded(folder)
    remedy = f"See what a new beginning deletes: moldau streams reset {topology.name}"
    for name, now in signatures(queries, topology).items():
        old = before.get(name)
        if old is not None and old != now:
            what = "state" if old["state"] != now["state"] else "reads"
            raise ProgramChanged(
                f"query {name} has a checkpoint of another version: it was {old[what]}, and is {now[what]}. {remedy}"
            )
    gone = [name for name in before if name not in {query.name for query in queries}]
    if gone:
        raise ProgramChanged(f"query {gone[0]} has a checkpoint and is not in the program any more. {remedy}")


def recorded(folder: Path) -> Mapping[str, Mapping[str, str]]:
    """The signatures of the queries that have run here."""
    record = folder / RECORD
    if not record.exists():
        return {}
    read: Mapping[str, Mapping[str, str]] = json.loads(record.read_text())
    return read


@dataclass(frozen=True, slots=True)
class Reset:
    """What a new beginning deletes. Topics of the user are not among it."""

    checkpoints: tuple[Path, ...]
    topics: tuple[str, ...]


def plan_reset(directory: PipelineDirectory) -> Reset:
    before = recorded(directory.path)
    checkpoints = tuple(path for name in before if (path := directory.checkpoints / name).exists())
    topics = {topic for each in before.values() for topic in each["internal"].split(", ") if topic}
    return Reset(checkpoints, tuple(sorted(topics)))


def execute_reset(directory: PipelineDirectory, plan: Reset, bootstrap: str) -> None:
    """Delete checkpoints and internal topics. The program must not run."""
    with locked(directory):
        if plan.topics:
            admin = Admin(Target(bootstrap))
            delete_topics(admin, [topic for topic in plan.topics if topic in set(list_topics(admin))])
        for path in plan.checkpoints:
            shutil.rmtree(path)
        (directory.path / RECORD).unlink(missing_ok=True)


def remember(queries: list[Query], topology: Topology, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORD).write_text(json.dumps(signatures(queries, topology), indent=1))
