"""A Spark driver in a process of its own, which a test commands: JSON lines in, JSON lines out.

The first argument says how to start it (see support/spark/process.py). It runs on PySpark 4.0 with Spark's own Kafka
connector as well as on ours, so Moldau is imported only where it is asked for.
"""

import base64
import json
import os
import sys
import traceback
from typing import Any

PLACE = ("topic", "partition", "offset", "timestampType")
ROWS = "key binary, value binary, topic string, partition int, headers array<struct<key: string, value: binary>>"


def start(settings: dict[str, Any]) -> Any:
    """A session, made by Moldau or by PySpark alone."""
    if settings["ours"]:
        from moldau.spark import session

        return session("driver", settings["master"], **settings["conf"])
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(settings["master"])
    for name, value in settings["conf"].items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(bytes(value)).decode()


def data(value: str | None) -> bytearray | None:
    return None if value is None else bytearray(base64.b64decode(value))


def shown(frame: Any) -> list[dict[str, Any]]:
    """Rows with Kafka's columns, as JSON has them."""
    rows = frame.selectExpr("*", "unix_millis(timestamp) AS timestamp_ms").drop("timestamp").collect()
    return [
        {
            **{name: row[name] for name in PLACE},
            "timestamp_ms": row["timestamp_ms"],
            "key": text(row["key"]),
            "value": text(row["value"]),
            "headers": [(each["key"], text(each["value"])) for each in row.asDict().get("headers") or ()],
        }
        for row in rows
    ]


def read(spark: Any, asked: dict[str, Any]) -> Any:
    return shown(spark.read.format(asked["format"]).options(**asked["options"]).load())


def stream(spark: Any, asked: dict[str, Any]) -> Any:
    """All that is there now, batch by batch; the checkpoint says where to begin."""
    batches: list[Any] = []
    frame = spark.readStream.format(asked["format"]).options(**asked["options"]).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: batches.append(shown(batch)))
    query = writer.option("checkpointLocation", asked["checkpoint"]).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches


def write(spark: Any, asked: dict[str, Any]) -> Any:
    """The rows, with the columns that the first of them has."""
    names = list(asked["rows"][0])
    rows = [
        (
            data(row.get("key")),
            data(row.get("value")),
            row.get("topic"),
            row.get("partition"),
            [(name, data(value)) for name, value in row.get("headers") or ()],
        )
        for row in asked["rows"]
    ]
    frame = spark.createDataFrame(rows, ROWS).select(*names)
    frame.write.format(asked["format"]).options(**asked["options"]).save()


def copy(spark: Any, asked: dict[str, Any]) -> Any:
    """Starts a stream from topic to topic, which goes on until the process ends."""
    frame = spark.readStream.format(asked["format"]).options(**asked["source"]).load()
    _start(frame.selectExpr(*asked.get("columns", ("key", "value"))).writeStream, asked)


def count(spark: Any, asked: dict[str, Any]) -> Any:
    """Starts a stream that counts records and sums their values by key, and writes all sums after each batch."""
    frame = spark.readStream.format(asked["format"]).options(**asked["source"]).load()
    frame.createOrReplaceTempView("numbers")
    sums = spark.sql("SELECT key, sum(int(string(value))) AS total, count(*) AS records FROM numbers GROUP BY key")
    rows = sums.selectExpr("key", "to_json(struct(total, records)) AS value")
    _start(rows.writeStream.outputMode("complete"), asked)


def _start(writer: Any, asked: dict[str, Any]) -> None:
    to_topic = writer.format(asked["format"]).options(**asked["sink"])
    to_topic.option("checkpointLocation", asked["checkpoint"]).start()


def running(spark: Any, _: dict[str, Any]) -> Any:
    """How many streams run."""
    return len(spark.streams.active)


def finish(spark: Any, _: dict[str, Any]) -> Any:
    """Waits until the streams have all that is there, and stops them."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


COMMANDS = {each.__name__: each for each in (read, stream, write, copy, count, running, finish)}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever prints on standard output must not speak between the answers
    spark = start(json.loads(sys.argv[1]))
    print(json.dumps({"ready": spark.version}), file=answers, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": COMMANDS[asked["do"]](spark, asked)}
        except Exception:  # noqa: BLE001 - the test judges it
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
