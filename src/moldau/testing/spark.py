"""MoldauSpark: the value of the fixture `moldau_spark`, a Spark session with a broker as its default.

Imports Spark on first use, so that tests without it need no PySpark.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from moldau.testing.broker import Broker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MASTER = "local[2]"
SETTINGS = {"spark.driver.memory": "1g", "spark.ui.enabled": False}


@dataclass(frozen=True, slots=True)
class MoldauSpark:
    """`moldau_spark.spark.readStream.format("moldau").option("subscribe", "orders")`"""

    spark: "SparkSession"
    broker: Broker

    @property
    def bootstrap_servers(self) -> str:
        return self.broker.bootstrap_servers


@contextmanager
def spark_with(broker: Broker) -> Iterator[MoldauSpark]:
    """Start a session; raises moldau.spark.SparkUnavailable with what to install."""
    from moldau.spark import session

    spark = session("moldau_spark", MASTER, **SETTINGS, **{"moldau.bootstrap": broker.bootstrap_servers})
    try:
        yield MoldauSpark(spark, broker)
    finally:
        spark.stop()
