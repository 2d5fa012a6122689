"""Exactly once: a task's rows and the note that they are written are one transaction; a repeated task finds the note.

A task begins its transactional producer first, which ends whatever an earlier attempt of it left open and shuts that
attempt out for good; then it reads its control offset (control.py). If that tells of the batch at hand, the rows are
read but not written: their number and digest must be those of the note. Otherwise they are written, the control offset
goes into the same transaction, and the transaction ends.

This is atomic for each task, not for a batch: Spark has no way to end many transactions at once. With `coalesce(1)` a
batch is one task and so one transaction.

A batch that Spark repeats must be cut into tasks as before. What would not be is found out: a task whose rows changed
stops the query; so do tasks that had written rows of the batch and are not among its tasks any more, which the driver
looks for in the first batch after each start (Spark repeats a batch only then). Rows of such a batch that other tasks
have written meanwhile stay written: this is an alarm, and the query does not get past it.

Control offsets expire (`offsets.retention.minutes` after the last commit) and can be deleted. The driver's offset is
older than those of tasks that it does not cover, so it goes first, and a query whose driver's offset is missing or too
old does not guess (`refusal`). Only a query's very first batch cannot be told from one whose offsets are gone.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.client.direct.metadata import Cluster
from moldau.client.direct.transactions import TransactionalProducer
from moldau.spark.cluster import QueryFailed, open_cluster
from moldau.spark.options import WriteOptions
from moldau.spark.sink.control_offsets import BatchCommit, ControlOffsets, TaskCommit
from moldau.spark.sink.layout import Layout
from moldau.spark.sink.record_writer import RecordWriter, unwrap
from moldau.spark.sink.rows import rows_of
from moldau.wire.compression import Codec

if TYPE_CHECKING:
    from moldau.spark.sink.digest import Digest

LOST = (
    "Without them nobody knows whether rows of this batch were written before. Control offsets expire with "
    "offsets.retention.minutes, go when the topic {topic} is deleted, and are missing when exactly-once is new to this "
    "checkpoint, when sinkName or the topic was changed, or when a sink in foreachBatch is not called for each batch. "
    "If no row of batch {batch} can have been written, or you accept that it is written twice, start the query once "
    "with failOnControlLoss=false"
)
OTHER_ROWS = (
    "A batch that is repeated must have the same rows in the same tasks. Look for rand() and the like, for a source "
    "that is not read the same way twice, for a core count or settings of parallelism that have changed, for adaptive "
    "execution (spark.sql.adaptive.streaming.stateless.enabled)"
)


@dataclass(frozen=True, slots=True)
class Task:
    """Which part of which batch a task is. `run` is the query's start; empty if nobody knows."""

    control: ControlOffsets
    index: int
    batch: int
    run: str
    every_batch: bool  # Spark calls a stream's sink for each batch; foreachBatch may not call ours


def write_exactly_once(batches: Iterator[Any], options: WriteOptions, layout: Layout, task: Task) -> int:
    """How many rows are written, now or before."""
    with _cluster(options) as cluster, _producer(cluster, options, task.control.task_group(task.index)) as producer:
        unwrap(producer.start())
        output = RecordWriter(cluster, producer, options)
        output.topic(task.control.topic)
        own = task.control.done(cluster, task.index)
        # In this order: while the driver's offset is there, the task's, which is younger, was there too.
        last = task.control.finished(cluster)
        problem = refusal(task, own, last, options.fail_on_control_loss)
        if problem:
            raise QueryFailed(problem)
        if own is not None and own.batch == task.batch:
            return _read_again(batches, options, layout, task, own)
        return _write(batches, options, layout, task, producer, output)


def _write(
    batches: Iterator[Any],
    options: WriteOptions,
    layout: Layout,
    task: Task,
    producer: TransactionalProducer,
    output: RecordWriter,
) -> int:
    digest = _digest()
    group, tp = task.control.task_group(task.index), task.control.tp
    try:
        for batch in batches:
            rows = rows_of(batch, layout)
            digest.add(rows, options.topic)
            output.write(rows)
        unwrap(producer.commit_offsets(group, {tp: TaskCommit(task.batch, digest.rows, str(digest)).offset()}))
        output.flush()
    except BaseException as failure:
        _check_fenced(producer, task, options, failure)
        producer.abort()
        raise
    # From here on it may be committed even if this fails: the next attempt finds out, so nothing is aborted.
    problem = producer.commit()
    _check_fenced(producer, task, options)
    unwrap(problem)
    return digest.rows


def _read_again(batches: Iterator[Any], options: WriteOptions, layout: Layout, task: Task, before: TaskCommit) -> int:
    """The task has written this batch: only looks whether it would write the same again."""
    digest = _digest()
    for batch in batches:
        digest.add(rows_of(batch, layout), options.topic)
    if (digest.rows, str(digest)) != (before.rows, before.digest):
        raise QueryFailed(
            f"task {task.index} of batch {task.batch} has written {before.rows} rows (digest {before.digest}) before, "
            f"and is now given {digest.rows} rows (digest {digest}), which are not the same. {OTHER_ROWS}"
        )
    return digest.rows


def _check_fenced(
    producer: TransactionalProducer, task: Task, options: WriteOptions, cause: BaseException | None = None
) -> None:
    if producer.failure is not None and producer.failure.fenced:
        raise QueryFailed(
            f"task {task.index} of batch {task.batch} was shut out while it wrote, and nothing of it is written: "
            "either another attempt of it has begun (the query runs twice, or spark.speculation is on, which cannot go "
            "with exactly-once), or it took longer than kafka.transaction.timeout.ms "
            f"({options.transaction_timeout_ms} ms): {producer.failure}"
        ) from cause


def refusal(task: Task, own: TaskCommit | None, last: BatchCommit | None, fail_on_loss: bool) -> str | None:
    """Why a task must not go on, given the control offsets of the task itself and of the driver; None if it may."""
    newest = max(own.batch if own else -1, last.batch if last else -1)
    if newest > task.batch:
        return (
            f"batch {task.batch} is to be written, but batch {newest} of this query has been already: the checkpoint "
            "is older than what was written from it, or the query runs twice. Going on would write rows a second time"
        )
    if own is not None and own.batch == task.batch:
        return None
    if last is not None and last.batch == task.batch and task.index >= last.tasks:
        was = f"batch {task.batch} was finished with {last.tasks} tasks before"
        return f"{was}, and now has a task {task.index}. {OTHER_ROWS}"
    lost = _lost(task, own, last)
    if lost is None or not fail_on_loss:
        return None
    return f"{lost}. {LOST.format(topic=task.control.topic, batch=task.batch)}"


def _lost(task: Task, own: TaskCommit | None, last: BatchCommit | None) -> str | None:
    if last is None:
        group = task.control.driver_group
        return f"this is batch {task.batch}, but there is no offset of the group {group}" if task.batch else None
    if task.index < last.tasks and (own is None or own.batch < last.batch):
        group = task.control.task_group(task.index)
        return f"batch {last.batch} was finished, but the offset of the group {group} does not say so"
    if task.every_batch and last.batch < task.batch - 1:
        return f"this is batch {task.batch}, but the last one that was finished with exactly-once is {last.batch}"
    return None


def finish(options: WriteOptions, control: ControlOffsets, batch: int, tasks: int, run: str) -> None:
    """On the driver, when all tasks of a batch have returned and before Spark takes it for done."""
    with _cluster(options) as cluster:
        last = control.finished(cluster)
        if not run or last is None or last.run != run:
            _look_for_others(cluster, options, control, batch, tasks)
        control.finish(cluster, BatchCommit(batch, tasks, run))


def _look_for_others(cluster: Cluster, options: WriteOptions, control: ControlOffsets, batch: int, tasks: int) -> None:
    """Tasks of an earlier attempt that this one did not have; they are shut out before they are asked."""
    for index in control.tasks_from(cluster, tasks):
        with _producer(cluster, options, control.task_group(index)) as producer:
            unwrap(producer.start())
        done = control.done(cluster, index)
        if done is not None and done.batch == batch and done.rows:
            raise QueryFailed(
                f"batch {batch} now has {tasks} tasks, but task {index} has written {done.rows} rows of it before, "
                f"which are written twice now. {OTHER_ROWS}"
            )


def _digest() -> "Digest":
    from moldau.spark.sink.digest import Digest  # with pandas, which takes longest to import, and a driver needs none

    return Digest()


def _cluster(options: WriteOptions) -> Cluster:
    return open_cluster(options.connection, timeout_ms=options.delivery_timeout_ms)


def _producer(cluster: Cluster, options: WriteOptions, transactional_id: str) -> TransactionalProducer:
    return TransactionalProducer(
        cluster,
        transactional_id,
        timeout_ms=options.transaction_timeout_ms,
        codec=Codec.named(options.compression),
        batch_bytes=options.batch_bytes,
        request_bytes=options.request_bytes,
        delivery_timeout_s=options.delivery_timeout_ms / 1000,
    )
