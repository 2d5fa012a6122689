"""A client of Spark Connect, without a JVM: what `format("moldau")` does in a remote session. Prints JSON.

connect_client.py SERVER BOOTSTRAP TOPIC DIRECTORY
"""

import json
import sys

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from moldau.spark import sink, source_metrics

server, bootstrap, topic, directory = sys.argv[1:]
where = {"kafka.bootstrap.servers": bootstrap}
spark = SparkSession.builder.remote(server).getOrCreate()
told = {}


def refused(name, do):
    try:
        told[name] = repr(do())
    except PySparkException as failed:
        told[name] = str(failed)


def stream(**options):
    found = spark.readStream.format("moldau").options(**where, startingOffsets="earliest", **options).load()
    return found.writeStream.trigger(availableNow=True)


rows = spark.createDataFrame([(f"k{n}", f'{{"id": {n}}}') for n in range(10)], "key string, value string")
rows.write.format("moldau").options(**where, topic=topic).mode("append").save()
read = spark.read.format("moldau").options(**where, subscribe=topic, decode="json", valueSchema="id int").load()
told["read"] = sorted(row["id"] for row in read.select("value.id").collect())

query = stream(subscribe=topic).format("moldau").options(**where, topic=f"{topic}-once", delivery="exactly-once")
query = query.option("checkpointLocation", f"{directory}/once").queryName(f"{topic}-query").start()
told["awaited"] = query.awaitTermination(300)
told["exception"] = repr(query.exception())
told["once"] = spark.read.format("moldau").options(**where, subscribe=f"{topic}-once").load().count()

told["metrics"] = [each.description for each in source_metrics(query.lastProgress)]
batches = stream(subscribe=topic).foreachBatch(sink(where, topic=f"{topic}-batches"))
told["batches"] = batches.option("checkpointLocation", f"{directory}/batches").start().awaitTermination(300)
told["in batches"] = spark.read.format("moldau").options(**where, subscribe=f"{topic}-batches").load().count()


def wait(writer, name):
    writer.option("checkpointLocation", f"{directory}/{name}").start().awaitTermination(300)


once = sink(where, topic=f"{topic}-batches", delivery="exactly-once", sinkName="s")
refused("exactly once in batches", lambda: wait(stream(subscribe=topic).foreachBatch(once), "refused"))
refused("unknown option", lambda: wait(stream(subscribe=topic, startingOfsets="x").format("noop"), "unknown"))
refused("batch", lambda: spark.read.format("moldau").options(**where, subscribe="not-there").load().count())
totals = spark.readStream.format("moldau").options(**where, subscribe=topic).load().groupBy("key").count()
totals = totals.selectExpr("key", "string(count) AS value").writeStream.outputMode("update").format("moldau")
refused("update", lambda: wait(totals.options(**where, topic=f"{topic}-totals"), "update"))
print(json.dumps(told))
