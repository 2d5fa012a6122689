"""The demo's pipeline: revenue of each product in windows of ten seconds, to a topic at once and to Parquet when final.

Run it on a broker of your own: moldau pipeline run demo/orders.py --bootstrap localhost:9092 --from earliest
"""

import os
import sys
from typing import Any

from pyspark.sql import functions as f

from moldau.spark import sink

SCHEMA = "order bigint, product string, cents bigint, at timestamp"
WINDOW, LATE = "10 seconds", "5 seconds"


def main(spark: Any) -> None:
    folder = sys.argv[1] if len(sys.argv) > 1 else "revenue-parquet"
    source = spark.readStream.format("moldau").option("subscribe", "orders").option("decode", "json")
    revenue = total(source.schema(SCHEMA).load())

    # Output mode update: each batch writes the windows that it changed.
    growing = as_records(revenue).writeStream.queryName("revenue").outputMode("update")
    growing.foreachBatch(sink(topic="revenue")).trigger(processingTime="1 second").start()
    # Output mode append: windows behind the watermark, for other tools.
    final = revenue.writeStream.queryName("revenue-archive").outputMode("append").format("parquet")
    final.trigger(processingTime="5 seconds").start(os.path.abspath(folder))


def total(orders: Any) -> Any:
    windows = orders.withWatermark("at", LATE).groupBy(f.window("at", WINDOW), "product")
    totals = windows.agg(f.count("order").alias("orders"), (f.sum("cents") / 100).alias("revenue"))
    return totals.select(f.col("window.start").alias("from"), "product", "orders", "revenue")


def as_records(totals: Any) -> Any:
    return totals.select(f.col("product").alias("key"), f.to_json(f.struct("*")).alias("value"))
