"""Program whose JVM loads the classes of a typical test: batch, aggregation, streams with state, Python functions."""

import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from moldau.spark import jvm, session


def main() -> None:
    spark = session("training", "local[2]", **{"spark.driver.memory": "600m", "spark.ui.enabled": False})
    frame = spark.createDataFrame([(1, "a"), (2, "b")], "id int, name string")
    frame.groupBy("name").count().collect()
    frame.mapInArrow(_same, frame.schema).collect()
    with tempfile.TemporaryDirectory() as folder:
        frame.write.mode("overwrite").parquet(f"{folder}/parquet")
        rows = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        counted = rows.selectExpr("value % 3 AS key").groupBy("key").count()
        query = (
            counted.writeStream.outputMode("update")
            .foreachBatch(_count)
            .option("checkpointLocation", str(Path(folder) / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
    spark.stop()
    process = jvm._running[0]
    assert process.stdin is not None
    process.stdin.close()  # the JVM ends, and writes its archive
    process.wait()


def _same(batches: Iterator[Any]) -> Iterator[Any]:
    yield from batches


def _count(frame: Any, _: int) -> None:
    frame.count()


if __name__ == "__main__":
    main()
