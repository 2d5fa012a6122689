"""The demo's pipeline: what each product earned in every ten seconds, into a topic at once and into Parquet when final.

Run it on a broker of your own: moldau pipeline run demo/orders.py --bootstrap localhost:9092 --from earliest
"""

import os
import sys
from typing import Any

SCHEMA = "order bigint, product string, amount decimal(10,2), at timestamp"
WINDOW, LATE = "10 seconds", "5 seconds"


def main(spark: Any) -> None:
    from pyspark.sql.functions import col, from_json

    folder = sys.argv[1] if len(sys.argv) > 1 else "revenue-parquet"
    records = spark.readStream.format("moldau").option("subscribe", "orders").load()
    orders = records.select(from_json(col("value").cast("string"), SCHEMA).alias("order")).select("order.*")
    revenue = total(orders)

    # Windows as they grow: each batch writes the ones that it changed.
    growing = revenue.writeStream.queryName("revenue").outputMode("update").foreachBatch(write)
    growing.trigger(processingTime="1 second").start()
    # Windows that no order can change any more, for other tools to read.
    final = revenue.writeStream.queryName("revenue-archive").outputMode("append").format("parquet")
    final.trigger(processingTime="5 seconds").start(os.path.abspath(folder))


def total(orders: Any) -> Any:
    from pyspark.sql.functions import col, count, window
    from pyspark.sql.functions import sum as sum_of

    windows = orders.withWatermark("at", LATE).groupBy(window("at", WINDOW), "product")
    totals = windows.agg(count("order").alias("orders"), sum_of("amount").alias("revenue"))
    return totals.select(col("window.start").alias("from"), "product", "orders", "revenue")


def write(totals: Any, batch: int) -> None:
    from pyspark.sql.functions import col, struct, to_json

    rows = totals.select(col("product").alias("key"), to_json(struct("*")).alias("value"))
    rows.write.format("moldau").option("topic", "revenue").mode("append").save()
