"""Register `format("moldau")` with a session, without the process in which Spark looks for sources of other packages.

Before it registers the first Python source, Spark starts two processes that import all modules named `pyspark_*`, to
find the sources in them: most of a second of each session's start. If ours is the only such module, the result is
known. Spark keeps it in a variable that is not part of its API; where that differs, Spark looks by itself.
"""

import contextlib
import pkgutil
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OWN_MODULE = "pyspark_moldau"
SOURCES = "org.apache.spark.sql.execution.datasources.DataSourceManager$"
SOURCE = "org.apache.spark.sql.execution.datasources.v2.python.UserDefinedPythonDataSource"
MORE_MODULES = "spark.submit.pyFiles"


def register(spark: "SparkSession") -> None:
    from py4j.protocol import Py4JError

    from moldau.spark.datasource import MoldauDataSource

    modules = [each.name for each in pkgutil.iter_modules() if each.name.startswith("pyspark_")]
    if modules == [OWN_MODULE] and not spark.sparkContext.getConf().get(MORE_MODULES):
        with contextlib.suppress(Py4JError, AttributeError, TypeError):
            _set_found(spark, MoldauDataSource)
    spark.dataSource.register(MoldauDataSource)


def _set_found(spark: "SparkSession", source: Any) -> None:
    """Tell Spark the result of its lookup. Sessions made with `newSession` find the source there."""
    from pyspark.sql.udf import _wrap_function

    jvm: Any = spark.sparkContext._jvm
    found = jvm.java.util.HashMap()
    found[source.name()] = getattr(jvm, SOURCE)(_wrap_function(spark.sparkContext, source))
    sources = getattr(getattr(jvm, SOURCES), "MODULE$")
    getattr(sources, "dataSourceBuilders_$eq")(jvm.scala.Option.apply(jvm.PythonUtils.toScalaMap(found)))
