"""Program inside a Spark driver, ours or the connector's: a job as a line of JSON in, its result out. Internal.

`python -P jobs.py SETTINGS` starts a session and says so; `sides` speaks with it. It may import nothing but PySpark,
because the connector's environment has nothing else; Moldau only where its format is asked for.
"""

import contextlib
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

from pyspark.sql import DataFrame, SparkSession

Job = dict[str, Any]
Answer = dict[str, Any]

LIMIT_S = 600
SINK_TASKS = 4  # partitions of the rows for a sink
PAD = "~"
TEN_DIGITS = 10**9
READ_DIGEST = "bit_xor(xxhash64(key, value, topic, partition, offset, timestamp, timestampType))"
WRITTEN_DIGEST = "bit_xor(xxhash64(key, value, partition))"
SUMS = "count(1) AS records", "coalesce(sum(length(value)), 0) AS bytes"


@dataclass(slots=True)
class Running:
    """The session, the format under test, and a query that was left running."""

    spark: SparkSession
    format: str
    query: Any = None


def start(settings: Job) -> Running:
    if settings["format"] == "moldau":
        from moldau.spark import session

        spark = session("bench", settings["master"], **settings["spark"])
    else:
        builder = SparkSession.builder.appName("bench").master(settings["master"])
        for name, value in settings["spark"].items():
            builder = builder.config(name, value)
        spark = builder.getOrCreate()
    spark.range(1).count()
    return Running(spark, settings["format"])


def read(running: Running, job: Job) -> Answer:
    """A whole topic, all columns, into `noop`."""
    if job["stream"]:
        with _checkpoint(job) as folder:
            return _run_stream(_topic_stream(running, job), "noop", folder, {})
    frame = _topic(running, job)
    return _timed(lambda: frame.write.format("noop").mode("overwrite").save())


def read_base(running: Running, job: Job) -> Answer:
    """As many rows of the same columns that Spark makes by itself, into `noop`: what reading costs beside reading."""
    columns = (
        "CAST(NULL AS BINARY) AS key", f"CAST('{PAD * job['size']}' AS BINARY) AS value", "'topic' AS topic",
        "0 AS partition", "n AS offset", "timestamp_millis(n) AS timestamp", "0 AS timestampType",
    )  # fmt: skip
    return _made(running, job, columns, "noop", {})


def write(running: Running, job: Job) -> Answer:
    """Rows that Spark makes, with keys, into a topic."""
    return _made(running, job, _rows(job), running.format, _to(job))


def write_base(running: Running, job: Job) -> Answer:
    return _made(running, job, _rows(job), "noop", {})


def check_read(running: Running, job: Job) -> Answer:
    """Sums over all columns, to compare what both read."""
    wanted = (*SUMS, f"{READ_DIGEST} AS digest")
    if not job["stream"]:
        return _first(_topic(running, job), wanted)
    found: list[Answer] = []
    with _checkpoint(job) as folder:
        writer = _topic_stream(running, job).writeStream.option("checkpointLocation", folder)
        query = writer.trigger(availableNow=True).foreachBatch(
            lambda frame, _: found.append(_first(frame, wanted))
        )  # fmt: skip
        query.start().awaitTermination(LIMIT_S)
    return found[0] if len(found) == 1 else {"batches": len(found)}


def check_written(running: Running, job: Job) -> Answer:
    """Sums over keys, values and the partitions that they went to."""
    return _first(_topic(running, job), (*SUMS, f"{WRITTEN_DIGEST} AS digest"))


def copy(running: Running, job: Job) -> Answer:
    """Starts a query that copies one topic to another and leaves it running."""
    rows = _topic_stream(running, job).selectExpr("key", "value")
    writer = rows.writeStream.format(running.format).options(**_to({**job, "topic": job["target"]}))
    writer = writer.option("checkpointLocation", tempfile.mkdtemp(dir=job["workdir"]))
    running.query = writer.trigger(processingTime="0 seconds").start()
    return {}


def end_copy(running: Running, job: Job) -> Answer:
    """Stops it, and says how its batches went."""
    query, running.query = running.query, None
    progress = [each for each in query.recentProgress if each["numInputRows"]]
    query.stop()
    if query.exception() is not None:
        raise RuntimeError(str(query.exception()))
    took = sorted(each["durationMs"].get("triggerExecution", 0) for each in progress)
    return {"batches": len(took), "batch_ms": took[len(took) // 2] if took else None}


def floor(running: Running, job: Job) -> Answer:
    """What Spark's batches take without source and sink: rows that it makes, into `noop`, at a trigger of 0 s."""
    rows = running.spark.readStream.format("rate-micro-batch").options(rowsPerBatch=100, numPartitions=2).load()
    with _checkpoint(job) as folder:
        writer = rows.writeStream.format("noop").option("checkpointLocation", folder)
        running.query = writer.trigger(processingTime="0 seconds").start()
        time.sleep(job["seconds"])
        return end_copy(running, job)


def _topic(running: Running, job: Job) -> DataFrame:
    options = {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": job["topic"]}
    return running.spark.read.format(running.format).options(**options).load()


def _topic_stream(running: Running, job: Job) -> DataFrame:
    options = {"kafka.bootstrap.servers": job["bootstrap"], "subscribe": job["topic"], "startingOffsets": "earliest"}
    return running.spark.readStream.format(running.format).options(**options).load()


def _to(job: Job) -> dict[str, str]:
    return {"kafka.bootstrap.servers": job["bootstrap"], "topic": job["topic"]}


def _rows(job: Job) -> tuple[str, str]:
    """A key and a value of exactly `size` bytes, each row with others; cheap to make, so that the sink is measured."""
    number = f"CAST(n + {TEN_DIGITS} AS STRING)"
    value = f"CAST(concat({number}, '{PAD * (job['size'] - 10)}') AS BINARY) AS value"
    return "CAST(CAST(n AS STRING) AS BINARY) AS key", value


def _made(running: Running, job: Job, columns: tuple[str, ...], sink: str, options: dict[str, str]) -> Answer:
    """As many rows as wanted, made by Spark, into a sink."""
    if not job["stream"]:
        rows = running.spark.range(0, job["records"], 1, SINK_TASKS).withColumnRenamed("id", "n").selectExpr(*columns)
        mode = "overwrite" if sink == "noop" else "append"
        return _timed(lambda: rows.write.format(sink).options(**options).mode(mode).save())
    source = running.spark.readStream.format("rate-micro-batch")
    source = source.options(rowsPerBatch=job["records"], numPartitions=SINK_TASKS)
    rows = source.load().withColumnRenamed("value", "n").selectExpr(*columns)
    with _checkpoint(job) as folder:
        return _run_stream(rows, sink, folder, options)


def _run_stream(rows: DataFrame, sink: str, checkpoint: str, options: dict[str, str]) -> Answer:
    """Everything that is there now, from the start of the query to its end."""
    writer = rows.writeStream.format(sink).options(**options).option("checkpointLocation", checkpoint)
    began = time.perf_counter()
    query = writer.trigger(availableNow=True).start()
    ended = query.awaitTermination(LIMIT_S)
    seconds = time.perf_counter() - began
    if not ended:
        query.stop()
        raise TimeoutError(f"the query did not end within {LIMIT_S} s")
    progress = query.recentProgress
    took = [dict(each["durationMs"]) for each in progress if each["numInputRows"]]
    return {"seconds": seconds, "records": sum(each["numInputRows"] for each in progress), "batches": took}


def _timed(action: Callable[[], None]) -> Answer:
    began = time.perf_counter()
    action()
    return {"seconds": time.perf_counter() - began}


def _first(frame: DataFrame, wanted: tuple[str, ...]) -> Answer:
    row = frame.selectExpr(*wanted).first()
    return row.asDict() if row is not None else {}


@contextlib.contextmanager
def _checkpoint(job: Job) -> Iterator[str]:
    folder = tempfile.mkdtemp(dir=job["workdir"])
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


JOBS: dict[str, Callable[[Running, Job], Answer]] = {
    each.__name__: each
    for each in (read, read_base, write, write_base, check_read, check_written, copy, end_copy, floor)
}


def serve(settings: Job, answers: TextIO) -> None:
    """One job after the other until the input ends; a failed one is an answer too."""
    running = start(settings)
    _say(answers, {"version": running.spark.version})
    for line in sys.stdin:
        job = json.loads(line)
        try:
            answer = JOBS[job["job"]](running, job)
        except Exception as failure:  # noqa: BLE001 - whatever Spark raises is for the other side to report
            answer = {"error": f"{type(failure).__name__}: {failure}"[:2000]}
        _say(answers, answer)
    running.spark.stop()


def _say(answers: TextIO, answer: Answer) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "w")  # Spark and its JVM print to standard output, too
    os.dup2(2, 1)
    serve(json.loads(sys.argv[1]), own)
