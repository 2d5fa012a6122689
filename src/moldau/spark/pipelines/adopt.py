"""Take over a checkpoint of `format("kafka")`: copy it, with the offsets as our source writes them.

Everything else stays: the query's id, finished batches, state, other sources. The query goes on with the next batch; it
repeats one that was not finished with the same offsets, as before.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

from moldau.base.ids import TopicPartition
from moldau.spark.checkpoints import (
    OFFSETS,
    LoggedBatch,
    UnreadableCheckpoint,
    committed_batches,
    logged_batches,
    read_batch,
)
from moldau.spark.pipelines.errors import PipelineError
from moldau.spark.source import stream_offsets
from moldau.spark.source.plan import OffsetRange
from moldau.spark.source.stream_offsets import StreamOffset

SOURCES = "sources"  # sources/N/0: where source N of the query began

Offsets = Mapping[TopicPartition, int]


class AdoptError(PipelineError):
    """The checkpoint cannot be taken over; the original is unchanged, and nothing was written."""


@dataclass(frozen=True, slots=True)
class AdoptedCheckpoint:
    """The copy. `offsets` is where the query goes on, per Kafka source; `repeats` the batch that was not finished."""

    path: Path
    offsets: list[Offsets]
    batch: int
    repeats: bool


def adopt_checkpoint(original: Path, target: Path, *, dry_run: bool = False) -> AdoptedCheckpoint:
    """Copy the checkpoint to the target, which must not exist. Raises AdoptError."""
    if target.exists():
        raise AdoptError(f"{target} exists already; a query has run with it, or a checkpoint was copied there before")
    try:
        batches = [read_batch(original, number) for number in logged_batches(original)]
        finished = set(committed_batches(original))
    except UnreadableCheckpoint as unreadable:
        raise AdoptError(str(unreadable)) from unreadable
    if not batches:
        raise AdoptError(f"{original} is not a checkpoint of a streaming query: it has no offsets")
    kafka = _kafka_sources(original, batches[-1])
    last = batches[-1]
    if len(batches) == 1 and last.number > 0 and last.number not in finished:
        raise AdoptError(f"{original} does not tell where batch {last.number} begins, which is not finished")
    converted = [_converted(original, *pair, kafka) for pair in pairwise([None, *batches])]
    found = AdoptedCheckpoint(
        target,
        [_kafka_offsets(original, last, source) for source in kafka],
        last.number,
        last.number not in finished,
    )
    if not dry_run:
        try:
            _copy(original, target, converted, kafka)
        except OSError as failed:
            raise AdoptError(f"cannot copy {original} to {target}: {failed}") from failed
    return found


def _kafka_sources(original: Path, batch: LoggedBatch) -> list[int]:
    """Sources of the query, by their number, that are Spark's Kafka source."""
    documents = [_json(line) for line in batch.offsets]
    found = [number for number, each in enumerate(documents) if stream_offsets.read_kafka(each)]
    if found:
        return found
    if any(isinstance(each, dict) and "cuts" in each for each in documents):
        raise AdoptError(f"{original} is a checkpoint of format('moldau') already; use it as it is")
    raise AdoptError(f"{original} is of a query without format('kafka')")


def _kafka_offsets(original: Path, batch: LoggedBatch, source: int) -> Offsets:
    line = batch.offsets[source] if source < len(batch.offsets) else None
    found = {} if line is None else stream_offsets.read_kafka(_json(line))
    if found is None:
        raise AdoptError(f"{original / OFFSETS / str(batch.number)} has other sources than the last batch")
    return found


def _converted(original: Path, before: LoggedBatch | None, batch: LoggedBatch | None, kafka: list[int]) -> LoggedBatch:
    """The batch with offsets of our source: with its tasks, from which it can be repeated."""
    assert batch is not None, "only the first has none before it"
    lines = list(batch.offsets)
    for source in kafka:
        ends = _kafka_offsets(original, batch, source)
        starts = _kafka_offsets(original, before, source) if before else _initial(original, source, batch, ends)
        tasks = tuple(OffsetRange(*tp, starts.get(tp, 0), end) for tp, end in ends.items() if starts.get(tp, 0) < end)
        if lines[source] is not None:
            lines[source] = json.dumps(stream_offsets.write(StreamOffset(ends, {}, tasks)), separators=(",", ":"))
    return replace(batch, offsets=tuple(lines))


def _initial(original: Path, source: int, batch: LoggedBatch, ends: Offsets) -> Offsets:
    """Where the source began. Spark removes old batches: if batch 0 is gone, the first that is left needs no start."""
    if batch.number > 0:
        return ends
    file = original / SOURCES / str(source) / "0"
    try:
        text = file.read_text()
    except (OSError, UnicodeDecodeError) as failed:
        raise AdoptError(f"cannot read {file}, where the query began: {failed}") from failed
    found = stream_offsets.read_kafka(_json(text.partition("\n")[2].strip()))
    if found is None:
        raise AdoptError(f"{file} has no offsets of topics")
    return found


def _copy(original: Path, target: Path, batches: list[LoggedBatch], kafka: list[int]) -> None:
    """Whole or not at all: the copy gets its name when it is complete."""
    unfinished = target.parent / f".{target.name}.adopting"
    shutil.rmtree(unfinished, ignore_errors=True)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        shutil.copytree(original, unfinished)
        for source in kafka:
            shutil.rmtree(unfinished / SOURCES / str(source), ignore_errors=True)
        for batch in batches:
            (unfinished / OFFSETS / str(batch.number)).write_text(batch.text())
            for checksum in (f".{batch.number}.crc", f"{batch.number}.crc"):  # of the old content
                (unfinished / OFFSETS / checksum).unlink(missing_ok=True)
        unfinished.replace(target)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _json(line: str | None) -> Any:
    try:
        return None if line is None else json.loads(line)
    except ValueError:
        return None
