"""Dry run of a pipeline: load the file, call `main`, check each query's options, brokers and topics; start nothing."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
from pathlib import Path

from moldau.base.errors import WireError
from moldau.base.settings import SettingsRefused
from moldau.client.direct.failure import Failure
from moldau.spark.cluster import open_cluster
from moldau.spark.connection import Connection
from moldau.spark.defaults import with_defaults
from moldau.spark.offsets import Assign, ConsumerStrategy, Subscribe, SubscribePattern
from moldau.spark.options import read_options, write_options
from moldau.spark.pipelines.directory import PipelineDirectory, pipeline_directory
from moldau.spark.pipelines.interception import PlannedQuery, intercept_queries
from moldau.spark.pipelines.run import PipelineSpec, call_main, check_master, pickle_by_value, spark_session
from moldau.spark.pipelines.script import Main, load_main
from moldau.spark.pipelines.signals import StopRequested, StopSignals
from moldau.spark.plans import FORMAT

TIMEOUT_MS = 5000


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """One query as it would run. `problems` would stop it; `resumes` tells that its checkpoint exists."""

    name: str
    reads: list[str]
    writes: str
    mode: str
    checkpoint: str
    resumes: bool
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DryRun:
    """Result of a dry run. `batch_writes` counts the batch writes that it skipped."""

    queries: list[QueryPlan]
    batch_writes: int


def dry_run(spec: PipelineSpec) -> DryRun:
    """Check what a run would do; raises a PipelineError if it would fail before its queries.

    Call it in the main thread: SIGINT and SIGTERM raise StopRequested.
    """
    directory = pipeline_directory(spec.data_directory, spec.name)
    check_master(spec.master)
    main = load_main(spec.file, spec.arguments)
    handle, name = tempfile.mkstemp(prefix="moldau-dry-run-", suffix=".log")
    log = Path(name)
    os.close(handle)
    try:
        found = _plan(spec, main, directory, log)
    except StopRequested:
        log.unlink()
        raise
    log.unlink()  # a failure keeps it, because its message names it
    return found


def _plan(spec: PipelineSpec, main: Main, directory: PipelineDirectory, log: Path) -> DryRun:
    found: DryRun | None = None
    with StopSignals() as signals, spark_session(spec, directory.checkpoints, log, signals) as spark:
        pickle_by_value(spec.file)
        # Raised again below: its traceback holds a connection on which the JVM may still owe an answer; closing the
        # session would wait for that answer and take it for its own.
        with suppress(StopRequested):
            with intercept_queries() as intercepted:
                call_main(main, spark, spec.file, log)
            found = DryRun([_check_query(planned) for planned in intercepted.planned], intercepted.batch_writes)
    if found is None:
        raise StopRequested
    return found


def _check_query(planned: PlannedQuery) -> QueryPlan:
    problems: list[str] = []
    reads = []
    for source in planned.reads:
        if source.format == FORMAT:
            reads.append(_check_source(source.options, problems))
        else:
            reads.append(source.format)
    writes = planned.writes
    target = _check_sink(writes.options, problems) if writes.format == FORMAT else writes.options.get("path", "")
    return QueryPlan(
        name=planned.name,
        reads=reads,
        writes=f"{writes.format} {target}".strip(),
        mode=writes.mode,
        checkpoint=planned.checkpoint,
        resumes=(Path(planned.checkpoint) / "offsets").is_dir(),
        problems=list(dict.fromkeys(problems)),
    )


def _check_source(options: Mapping[str, str], problems: list[str]) -> str:
    try:
        found = read_options(with_defaults(options, stream=True), stream=True)
    except SettingsRefused as refused:
        problems += [problem.message for problem in refused.problems]
        return FORMAT
    _check_brokers(found.connection, _topic_names(found.topics), problems)
    return f"{FORMAT} {_describe_topics(found.topics)}"


def _check_sink(options: Mapping[str, str], problems: list[str]) -> str:
    try:
        found = write_options(with_defaults(options))
    except SettingsRefused as refused:
        problems += [problem.message for problem in refused.problems]
        return ""
    _check_brokers(found.connection, [], problems)
    return found.topic or "(the topic column of each row)"


def _check_brokers(connection: Connection, topics: list[str], problems: list[str]) -> None:
    with closing(open_cluster(connection, timeout_ms=TIMEOUT_MS)) as cluster:
        described = cluster.describe(topics)
    if isinstance(described, Failure):
        problems.append(str(described))
        return
    for name, topic in described.items():
        if isinstance(topic, Failure) and topic.code == WireError.UNKNOWN_TOPIC_OR_PARTITION:
            problems.append(f"there is no topic {name!r}; create it with: moldau topic create {name}")
        elif isinstance(topic, Failure):
            problems.append(str(topic))


def _topic_names(topics: ConsumerStrategy) -> list[str]:
    match topics:
        case Subscribe():
            return list(topics.topics)
        case Assign():
            return sorted({partition.topic for partition in topics.partitions})
        case SubscribePattern():
            return []


def _describe_topics(topics: ConsumerStrategy) -> str:
    match topics:
        case Subscribe():
            return ",".join(topics.topics)
        case Assign():
            return ",".join(map(str, topics.partitions))
        case SubscribePattern():
            return f"/{topics.pattern}/"
