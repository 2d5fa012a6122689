"""A dry run: the file is loaded, `main` is called, and what it would start is looked at. Nothing is started."""

import os
import tempfile
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from moldau.base.settings import SettingsRefused
from moldau.client.direct.failed import Failed
from moldau.spark.connection import Connection
from moldau.spark.defaults import with_defaults
from moldau.spark.link import open_cluster
from moldau.spark.offsets import Assigned, Matching, Subscribed, Topics
from moldau.spark.options import read_options, write_options
from moldau.spark.pipelines.places import place_of
from moldau.spark.pipelines.run import Request, call_main, check_master, send_by_value, spark_session
from moldau.spark.pipelines.script import load_main
from moldau.spark.pipelines.signals import Signals
from moldau.spark.pipelines.writers import Planned, noticed
from moldau.spark.plans import OURS

PATIENCE_MS = 5000


@dataclass(frozen=True, slots=True)
class Line:
    """One query as it would run. `wrong` has what would stop it."""

    name: str
    reads: list[str]
    writes: str
    mode: str
    checkpoint: str
    resumes: bool
    wrong: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Rehearsal:
    queries: list[Line]
    batch_writes: int


def rehearse(request: Request) -> Rehearsal:
    """What a run would do; PipelineFailed if it would not come that far."""
    place = place_of(request.directory, request.name)
    check_master(request.master)
    main = load_main(request.file, request.arguments)
    handle, name = tempfile.mkstemp(prefix="moldau-dry-run-", suffix=".log")
    log = Path(name)
    os.close(handle)
    with Signals() as signals, spark_session(request, place.checkpoints, log, signals) as spark:
        send_by_value(request.file)
        with noticed() as found:
            call_main(main, spark, request.file, log)
        lines = [_line(planned) for planned in found.planned]
    log.unlink()  # kept only for those whom a failure sends there
    return Rehearsal(lines, found.batch_writes)


def _line(planned: Planned) -> Line:
    wrong: list[str] = []
    reads = []
    for source in planned.reads:
        if source.format == OURS:
            reads.append(_look_at_source(source.options, wrong))
        else:
            reads.append(source.format)
    writes = planned.writes
    target = _look_at_sink(writes.options, wrong) if writes.format == OURS else writes.options.get("path", "")
    return Line(
        name=planned.name,
        reads=reads,
        writes=f"{writes.format} {target}".strip(),
        mode=writes.mode,
        checkpoint=planned.checkpoint,
        resumes=(Path(planned.checkpoint) / "offsets").is_dir(),
        wrong=list(dict.fromkeys(wrong)),
    )


def _look_at_source(options: Mapping[str, str], wrong: list[str]) -> str:
    try:
        found = read_options(with_defaults(options, stream=True), stream=True)
    except SettingsRefused as refused:
        wrong += [problem.message for problem in refused.problems]
        return OURS
    _look_at_brokers(found.connection, _named(found.topics), wrong)
    return f"{OURS} {_shown(found.topics)}"


def _look_at_sink(options: Mapping[str, str], wrong: list[str]) -> str:
    try:
        found = write_options(with_defaults(options))
    except SettingsRefused as refused:
        wrong += [problem.message for problem in refused.problems]
        return ""
    _look_at_brokers(found.connection, [], wrong)
    return found.topic or "(the topic that each row names)"


def _look_at_brokers(connection: Connection, topics: list[str], wrong: list[str]) -> None:
    with closing(open_cluster(connection, timeout_ms=PATIENCE_MS)) as cluster:
        answer = cluster.describe(topics)
    if isinstance(answer, Failed):
        wrong.append(str(answer))
        return
    for name, topic in answer.items():
        if isinstance(topic, Failed):
            wrong.append(f"topic {name}: {topic}")


def _named(topics: Topics) -> list[str]:
    match topics:
        case Subscribed():
            return list(topics.topics)
        case Assigned():
            return sorted({place.topic for place in topics.partitions})
        case Matching():
            return []


def _shown(topics: Topics) -> str:
    match topics:
        case Subscribed():
            return ",".join(topics.topics)
        case Assigned():
            return ",".join(map(str, topics.partitions))
        case Matching():
            return f"/{topics.pattern}/"
