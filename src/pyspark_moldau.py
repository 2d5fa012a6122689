"""Lets Spark find `format("moldau")` by itself: it looks for modules named `pyspark_*` that have a `DefaultSource`.

Must never fail to be imported, or Spark would find no source at all. Without PySpark it is empty.
"""

from contextlib import suppress

with suppress(ImportError):
    from moldau.spark.datasource import MoldauDataSource as DefaultSource  # noqa: F401
