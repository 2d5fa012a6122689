"""`plain_errors`: a query's own error reaches the user as its sentence, without a Python traceback in front of it.

PySpark sends an exception of a Python worker to Spark as text: the traceback and, at its end, the message. For an error
that says everything itself, the frames only hide it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.base.settings import SettingsRefused
from moldau.spark.cluster import QueryFailed
from moldau.spark.workers import is_worker

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # PySpark reads it when it sends an exception


@contextmanager
def plain_errors() -> Iterator[None]:
    """Around calls of Spark. A worker ends with its first exception, so the variable hides no other one."""
    try:
        yield
    except (QueryFailed, SettingsRefused):
        if is_worker():
            os.environ[HIDE_TRACEBACK] = "1"
        raise
