"""Exactly-once writes: a task commits rows and control offset in one transaction; a repeated task finds the offset.

A task first starts its transactional producer, which aborts the open transaction of an earlier attempt and fences it.
Then it reads its control offset (control_offsets.py). If that is of the current batch, the task reads its rows without
writing them: their number and digest must be those of the control offset. Otherwise it writes the rows and commits the
control offset in the same transaction.

This is atomic per task, not per batch: Spark has no way to commit many transactions at once. With `coalesce(1)` a batch
is one task and so one transaction.

A replayed batch must have the same tasks. Differences are detected: a task with other rows fails the query, and so do
tasks that had written rows of the batch and no longer exist; the driver looks for those in the first batch after each
start (Spark replays a batch only then). Rows that other tasks have written meanwhile stay written: the query fails and
does not continue.

Control offsets expire (`offsets.retention.minutes` after the last commit) and can be deleted. The driver's offset is
older than those of the tasks that it does not cover, so it expires first; a query with a missing or outdated driver's
offset does not guess (`refusal`). Only the first batch of a query cannot be told from one with expired offsets.
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
    "Without them it is unknown whether rows of this batch were written before. Control offsets expire with "
    "offsets.retention.minutes, are deleted with the topic {topic}, and are missing when exactly-once is new to this "
    "checkpoint, when sinkName or the topic was changed, or when a sink in foreachBatch is not called for each batch. "
    "If no row of batch {batch} can have been written, or you accept that it is written twice, start the query once "
    "with failOnControlLoss=false"
)
OTHER_ROWS = (
    "A repeated batch must have the same rows in the same tasks. Look for rand() and similar functions, for a source "
    "that does not return the same rows twice, for a changed number of cores or parallelism settings, for adaptive "
    "execution (spark.sql.adaptive.streaming.stateless.enabled)"
)


@dataclass(frozen=True, slots=True)
class WriteTask:
    """A task of a batch. `run` is the run id of the query; empty if unknown."""

    control: ControlOffsets
    index: int
    batch: int
    run: str
    every_batch: bool  # Spark calls a stream's sink for each batch; a foreachBatch function may skip ours


def write_exactly_once(batches: Iterator[Any], options: WriteOptions, layout: Layout, task: WriteTask) -> int:
    """Number of rows written, now or before."""
    with _cluster(options) as cluster, _producer(cluster, options, task.control.task_group(task.index)) as producer:
        unwrap(producer.start())
        output = RecordWriter(cluster, producer, options)
        output.topic(task.control.topic)
        own = task.control.task_commit(cluster, task.index)
        # In this order: if the driver's offset exists, the task's, which is newer, existed too.
        last = task.control.batch_commit(cluster)
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
    task: WriteTask,
    producer: TransactionalProducer,
    output: RecordWriter,
) -> int:
    digest = _digest()
    group, tp = task.control.task_group(task.index), task.control.tp
    encoder = options.encoder()
    try:
        for batch in batches:
            rows = rows_of(batch, layout, encoder)
            digest.add(rows, options.topic)
            output.write(rows)
        unwrap(producer.commit_offsets(group, {tp: TaskCommit(task.batch, digest.rows, str(digest)).offset()}))
        output.flush()
    except BaseException as failure:
        _check_fenced(producer, task, options, failure)
        producer.abort()
        raise
    # From here on it may be committed even if this fails: do not abort, the next attempt finds out.
    problem = producer.commit()
    _check_fenced(producer, task, options)
    unwrap(problem)
    return digest.rows


def _read_again(
    batches: Iterator[Any], options: WriteOptions, layout: Layout, task: WriteTask, before: TaskCommit
) -> int:
    """The task has written this batch: check that it would write the same rows."""
    digest, encoder = _digest(), options.encoder()
    for batch in batches:
        digest.add(rows_of(batch, layout, encoder), options.topic)
    if (digest.rows, str(digest)) != (before.rows, before.digest):
        raise QueryFailed(
            f"task {task.index} of batch {task.batch} has written {before.rows} rows (digest {before.digest}) before, "
            f"and is now given {digest.rows} rows (digest {digest}), which are not the same. {OTHER_ROWS}"
        )
    return digest.rows


def _check_fenced(
    producer: TransactionalProducer, task: WriteTask, options: WriteOptions, cause: BaseException | None = None
) -> None:
    if producer.failure is not None and producer.failure.fenced:
        raise QueryFailed(
            f"task {task.index} of batch {task.batch} was fenced while it wrote, and none of its rows are written: "
            "either another attempt of it has started (the query runs twice, or spark.speculation is on, which "
            "exactly-once does not support), or it took longer than kafka.transaction.timeout.ms "
            f"({options.transaction_timeout_ms} ms): {producer.failure}"
        ) from cause


def refusal(task: WriteTask, own: TaskCommit | None, last: BatchCommit | None, fail_on_loss: bool) -> str | None:
    """The reason why a task must not continue, from the control offsets of the task and the driver; else None."""
    newest = max(own.batch if own else -1, last.batch if last else -1)
    if newest > task.batch:
        return (
            f"batch {task.batch} is to be written, but batch {newest} of this query is already written: the checkpoint "
            "is older than the written rows, or the query runs twice. Continuing would write rows twice"
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


def _lost(task: WriteTask, own: TaskCommit | None, last: BatchCommit | None) -> str | None:
    if last is None:
        group = task.control.driver_group
        return f"this is batch {task.batch}, but there is no offset of the group {group}" if task.batch else None
    if task.index < last.tasks and (own is None or own.batch < last.batch):
        group = task.control.task_group(task.index)
        return f"batch {last.batch} was finished, but the offset of the group {group} does not say so"
    if task.every_batch and last.batch < task.batch - 1:
        return f"this is batch {task.batch}, but the last one that was finished with exactly-once is {last.batch}"
    return None


def commit_batch(options: WriteOptions, control: ControlOffsets, batch: int, tasks: int, run: str) -> None:
    """On the driver: all tasks of a batch have returned, and Spark has not committed it yet."""
    with _cluster(options) as cluster:
        last = control.batch_commit(cluster)
        if not run or last is None or last.run != run:
            _check_missing_tasks(cluster, options, control, batch, tasks)
        control.commit_batch(cluster, BatchCommit(batch, tasks, run))


def _check_missing_tasks(
    cluster: Cluster, options: WriteOptions, control: ControlOffsets, batch: int, tasks: int
) -> None:
    """Look for tasks of an earlier attempt that this one does not have; fence them before reading their offsets."""
    for index in control.tasks_from(cluster, tasks):
        with _producer(cluster, options, control.task_group(index)) as producer:
            unwrap(producer.start())
        task_commit = control.task_commit(cluster, index)
        if task_commit is not None and task_commit.batch == batch and task_commit.rows:
            raise QueryFailed(
                f"batch {batch} now has {tasks} tasks, but task {index} wrote {task_commit.rows} rows of it before, "
                f"which are now written twice. {OTHER_ROWS}"
            )


def _digest() -> "Digest":
    from moldau.spark.sink.digest import Digest  # imports pandas: slow, and not needed on the driver

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
