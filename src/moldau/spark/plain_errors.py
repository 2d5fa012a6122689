"""`plain_errors`: a query's own error reaches the user as its sentence, without a Python traceback in front of it.

PySpark sends an exception of a Python worker to Spark as text: the traceback and, at its end, the message. For an error
that says everything itself, the frames only hide it.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.base.settings import SettingsRefused
from moldau.spark.cluster import QueryFailed

HIDE_TRACEBACK = "SPARK_HIDE_TRACEBACK"  # PySpark reads it when it sends an exception
WORKER = "PYTHON_WORKER_FACTORY_"  # how variables of a Python worker begin, and of none else


@contextmanager
def plain_errors() -> Iterator[None]:
    """Around calls of Spark. A worker ends with its first exception, so the variable hides no other one."""
    try:
        yield
    except (QueryFailed, SettingsRefused):
        if any(name.startswith(WORKER) for name in os.environ):
            os.environ[HIDE_TRACEBACK] = "1"
        raise
